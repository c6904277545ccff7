"""SGLang's worker of drafters without an autoregressive part, outside of an engine: what a step drafts and copies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from mtpc.draft import Draft, DraftContext, Mode
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import load_drafter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied
from mtpc.target_head.shared import SharedHead
from sglang_mtpc import parallel_worker, ranks, served
from sglang_mtpc.drafting import Drafting, DraftInputs
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps
from tests.sglang_mtpc.stand_ins import PlainRequest, Texts, batch_of
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_models import make_target_leaves

OWN = DraftShape(4, 1, 4)


@pytest.mark.parametrize("mode", ["greedy", "mixed", "sampled"])
@pytest.mark.parametrize("copied", [0, 2])
def test_a_step_drafts_what_the_window_does(drafter: Path, mode: Mode, copied: int, verified: list[Draft]) -> None:
    """With prompt lookup, copied tokens extend the draft."""
    parallel = load_drafter(drafter).parallel
    assert parallel is not None
    rows, drafts = 8, OWN.depth + copied
    states = torch.randn(rows, 64)
    batch, _ = batch_of(rows, mode, states)
    made = ParallelWorker.__new__(ParallelWorker)
    made.clock, made.steps, made._target_worker = DraftClock(None), BatchSteps(7), None
    made.lengths, made.shape = Texts(OWN.depth) if copied else None, DraftShape(drafts, 1, drafts)
    made.drafting = Drafting(parallel, OWN, copies=bool(copied))
    made.strategy = made._strategy()
    made._draft(batch)
    ((tokens, probs),) = verified

    found = Texts()
    found.begin(batch.reqs)
    texts = found.copied(drafts)
    own = Copied(*(each[:, : OWN.depth] for each in texts)) if copied else None
    known = DraftContext(states[:, None], batch.spec_info.bonus_tokens[:, None])
    expected = made.drafting(DraftInputs.of(known, BatchSteps(7).begin(batch), own), mode)
    assert isinstance(expected, Draft)
    assert torch.equal(tokens[:, : OWN.depth], expected.tokens)
    assert torch.equal(tokens[:, OWN.depth :], texts.tokens[:, OWN.depth : drafts])
    assert (probs is None) == (mode == "greedy")
    if probs is not None and expected.probs is not None:
        assert torch.equal(probs[:, : OWN.depth], expected.probs)
        assert torch.equal(probs[:, OWN.depth :].argmax(2), texts.tokens[:, OWN.depth : drafts])


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("children", [1, 3])
@torch.inference_mode()
def test_a_window_drafts_through_the_targets_head_by_language(
    target: Path, children: int, token_input: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain or a tree; the targets' tokens are within and outside of the draft vocabularies."""
    folder = make_target_leaves(tmp_path / "drafter", target, token_input=token_input)
    shape = DraftShape(4, children, 4 if children == 1 else 9)
    spec = SimpleNamespace(
        speculative_adaptive=False,
        speculative_draft_model_path=str(folder),
        speculative_token_map=f"{make_vocabulary(tmp_path / 'vocabulary.json', 258)}?size=60",
        speculative_num_steps=shape.depth,
        speculative_eagle_topk=children,
        speculative_num_draft_tokens=shape.nodes + 1,
    )
    schedule = SimpleNamespace(max_running_requests=6, disable_overlap_schedule=False)
    monkeypatch.setattr(served, "get_spec", lambda: spec)
    for module in (served, parallel_worker):
        monkeypatch.setattr(module, "get_schedule", lambda: schedule)
    group = SimpleNamespace(all_gather=lambda tensor, dim=-1: tensor)
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_rank=0, tp_size=1, tp_group=group))
    announced: list[Any] = []
    monkeypatch.setattr(served, "announce", lambda *arguments: announced.append(arguments))
    plain = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    model = SimpleNamespace(hidden_size=64, vocab_size=258, dtype=torch.float32, model_path=str(target))
    made: Any = ParallelWorker.__new__(ParallelWorker)
    made.device, made.shape, made.clock = torch.device("cpu"), shape, DraftClock(None)
    shared = SimpleNamespace(language_model=plain) if token_input else plain  # as in a multimodal target
    made._target_worker = SimpleNamespace(model_runner=SimpleNamespace(model=shared))
    monkeypatch.setattr(served, "get_device", lambda: SimpleNamespace(device="cuda"))
    strategy, rows = made._load(model), 6
    assert announced == [(made.drafting.with_head_inputs.args[1].draft_logits, 0)]

    words = [list(b"it was the best of times"), list(b"IT WAS THE WORST OF TIMES")]
    requests = [PlainRequest() for _ in range(rows)]
    for row, request in enumerate(requests):
        request.__dict__ |= {"origin_input_ids": words[row % 2], "output_ids": []}
    made.requests.choose(requests)
    assert set(made.requests.chosen) >= {0, 1}
    batch, _ = batch_of(rows, "greedy", torch.randn(rows, 64, generator=torch.Generator().manual_seed(5)))
    batch.spec_info.bonus_tokens = torch.tensor([101, 69, 7, 101, 200, 32])
    found, drafter = strategy(batch, BatchSteps(7).begin(batch)), load_drafter(folder)
    for row, number in enumerate(made.requests.chosen):
        session = ReferenceDrafter(drafter, SharedHead.of(plain).restricted(made.vocabularies.ids[number]))
        known = batch.spec_info.hidden_states[row, None, None], batch.spec_info.bonus_tokens[row, None, None]
        if children == 1:
            assert torch.equal(found.tokens[row], session.draft(*known, shape.depth).tokens[0])
        else:
            tree = session.draft_tree(*known, shape.nodes, None, children, depth=shape.depth)
            assert torch.equal(found.tokens[row], tree.tokens[0]) and torch.equal(found.parents[row], tree.parents[0])
