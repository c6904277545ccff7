"""SGLang's settings that an MTPC drafter with a window of 8 refuses, and a part of each error message."""

from __future__ import annotations

TREE = ("--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "12")
SGLANG_SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "too many drafts": (("--speculative-num-steps", "8"), "must be a whole number from 1 to 7"),
    "no drafts": (("--speculative-num-steps", "0"), "from 1 to 7"),
    "too many tokens": (("--speculative-num-draft-tokens", "9"), "--speculative-num-draft-tokens less 1 is 8"),
    "not a chain": (("--speculative-num-steps", "5", "--speculative-num-draft-tokens", "8"), "verified as 6 tokens"),
    "no children": (("--speculative-eagle-topk", "0"), "at least 1"),
    "a tree of unknown size": (("--speculative-eagle-topk", "2"), "--speculative-num-draft-tokens is None"),
    "a tree of one node": ((*TREE, "--speculative-num-draft-tokens", "1"), "at least 2"),
    "a tree that does not fit": ((*TREE, "--speculative-num-steps", "1"), "a draft tree of 11 nodes does not fit"),
    "a tree deeper than its nodes": (
        (*TREE, "--speculative-num-draft-tokens", "4", "--speculative-num-steps", "5"),
        "is at most 3 deep",
    ),
    "borrowed in a chain": (("--speculative-token-map", "?borrow=2"), "needs a draft tree"),
    "a tree of borrowed nodes": (
        (*TREE, "--speculative-token-map", "?borrow=11"),
        "cannot borrow 11 of 11 draft tree nodes",
    ),
    "a vocabulary beside borrowed nodes": (
        (*TREE, "--speculative-token-map", "map.pt?borrow=2"),
        "--speculative-token-map is 'map.pt?borrow=2'",
    ),
    "a tree with distributions": ((*TREE, "--speculative-use-rejection-sampling"), "is for chains"),
    "an acceptance threshold": (("--speculative-accept-threshold-acc", "0.5"), "--speculative-accept-threshold-acc is"),
    "adaptive trees": ((*TREE, "--speculative-adaptive"), "with --speculative-adaptive it must be 1"),
    "adaptive, another start": (
        ("--speculative-adaptive", "--speculative-num-steps", "3"),
        "is 3, but with --speculative-adaptive it is the largest of candidate_steps, 7: leave it out",
    ),
    "adaptive, no file": (
        ("--speculative-adaptive", "--speculative-adaptive-config", "gone.json"),
        "--speculative-adaptive-config is gone.json, which cannot be used",
    ),
    "adaptive, two batches": (
        ("--speculative-adaptive", "--enable-two-batch-overlap"),
        "--enable-two-batch-overlap is True",
    ),
    "not adaptive": (("--speculative-adaptive-config", "a.json"), "--speculative-adaptive-config is 'a.json'"),
    "a token map": (("--speculative-token-map", "map.pt"), "--speculative-token-map is 'map.pt'"),
    "a draft window": (("--speculative-draft-window-size", "64"), "must be left out"),
    "pipeline parallelism": (("--pp-size", "2"), "--pp-size is 2"),
    "hidden states": (("--enable-return-hidden-states",), "--enable-return-hidden-states is True"),
    "unified memory": (("--enable-unified-memory",), "--enable-unified-memory is True"),
    "logit processors": (("--enable-custom-logit-processor",), "--enable-custom-logit-processor is True"),
    "another algorithm's": (("--speculative-ngram-capacity", "9"), "--speculative-ngram-capacity is 9"),
    "a revision": (("--speculative-draft-model-revision", "v2"), "--speculative-draft-model-revision is 'v2'"),
}
