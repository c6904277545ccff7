"""A Markov head that drafts from candidates only, against its definition, and prompts of growing length."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.subword_circuits import BORDERS, SKIPPED, CandidateMarkovPart, context_prompts
from mtpc.draft import DraftContext
from mtpc.errors import MTPCError
from mtpc.methods.mtpc import MTPCConfig
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.parallel.markov_part import MarkovPart
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.mtpc.lab.corpus_folder import make_corpus

VOCAB, HIDDEN, WINDOW, RANK, STARTS = 11, 8, 4, 3, 10


def test_the_distribution_of_the_candidates_is_renormalized() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "leaf_features": 4, "trunk_size": 6}
    config = MTPCConfig(
        circuit="ff", window=WINDOW, rank=1, leaves="target", token_input=True, markov_rank=RANK, **sizes
    )
    part = MarkovPart(config, RANK)
    for weight in part.parameters():
        weight.data.normal_()
    part.requires_grad_(False)
    head = SharedHead(torch.randn(VOCAB, HIDDEN), torch.randn(VOCAB, HIDDEN))
    given = DraftContext(torch.randn(STARTS, 1, HIDDEN), torch.randint(VOCAB, (STARTS, 1)))
    context = with_head_inputs(given, None, head)
    text = torch.randint(VOCAB, (STARTS, WINDOW - 1))
    every, some = CandidateMarkovPart.of(part, VOCAB), CandidateMarkovPart.of(part, 4)
    torch.testing.assert_close(every.log_probs(context, text, 0.7), part.log_probs(context, text, 0.7))

    candidates = head.logits(part.states(context)).topk(4).indices
    law = part._logits_along(context, text).div(0.7).softmax(-1)
    mass = law.gather(2, candidates).sum(-1)
    is_candidate = (candidates == text[..., None]).any(-1)
    expected = (law.gather(2, text[..., None])[..., 0] / mass).where(is_candidate, 0.0)
    assert 0 < is_candidate.float().mean() < 1
    torch.testing.assert_close(some.log_probs(context, text, 0.7).exp(), expected)
    best = some.most_probable_tokens(context, text)
    torch.testing.assert_close(best, candidates.gather(2, law.gather(2, candidates).argmax(-1, True))[..., 0])


def test_prompts_of_each_length_end_at_one_place(tmp_path: Path) -> None:
    make_chat_folder(tmp_path / "target")
    corpus, length = make_corpus(tmp_path / "corpus", 100, SKIPPED + BORDERS[-1]), 28
    prompts = context_prompts(corpus, tmp_path / "target", 4, length)
    assert not prompts.stop_at_end
    for kind in corpus.kinds():
        given = bytes(corpus.heldout(kind)[SKIPPED : SKIPPED + BORDERS[-1] - length].tolist())
        for border in BORDERS:
            size = border - length
            assert prompts.by_kind[f"{kind}, {size}"] == [list(given[-size:])]
    for folder, outputs, expected in (
        (make_corpus(tmp_path / "short", 100, BORDERS[-1]), length, "use a larger corpus"),
        (corpus, BORDERS[0], "--length must be at most 126"),
    ):
        with pytest.raises(MTPCError, match=expected):
            context_prompts(folder, tmp_path / "target", 4, outputs)
