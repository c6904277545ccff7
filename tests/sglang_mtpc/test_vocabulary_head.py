"""Logits of a batch whose requests have several rows each, or one, and draft vocabularies of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sglang.srt.environ import envs
from sglang.srt.utils.async_probe import maybe_detect_inf
from torch import nn

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc.finite import LOWEST
from sglang_mtpc.vocabulary_head import DraftLogitsProcessor, LogitsProcessor, VocabularyHead, ZeroHead

RANKINGS = Rankings(6, {"low": Ranking((0, 1, 2)), "high": Ranking((3, 4, 5))})
HEAD = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LOGITS = DraftLogits(DraftVocabularies(RANKINGS, VocabularySettings(size=3)), HEAD)


def processor() -> Any:
    """One outside of an engine."""
    made = DraftLogitsProcessor.__new__(DraftLogitsProcessor)
    nn.Module.__init__(made)
    return made


@pytest.mark.parametrize("rows_each", [1, 4])
def test_rows_of_a_request_share_its_vocabulary(rows_each: int) -> None:
    numbers = torch.tensor([1, 0, 1])
    states = torch.randn(3 * rows_each, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
    computed = processor()._get_logits(states, VocabularyHead(LOGITS, numbers), None)
    assert computed.dtype == torch.float32
    for row, logits in enumerate(computed):
        ids = [(0, 1, 2), (3, 4, 5)][numbers[row // rows_each]]
        assert logits.softmax(0).nonzero()[:, 0].tolist() == list(ids)
        expected = states[row] @ HEAD[list(ids)].bfloat16().T
        torch.testing.assert_close(logits[list(ids)], expected.float())


def test_one_vocabulary_for_all() -> None:
    computed = processor()._get_logits(torch.ones(5, 4), VocabularyHead(LOGITS, None), None)
    assert (computed > LOWEST).all(0).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sglangs_probes_find_no_fault(dtype: torch.dtype) -> None:
    """And no token that cannot be drafted has any probability, at any temperature."""
    logits = processor()._get_logits(torch.ones(2, 4, dtype=dtype), VocabularyHead(LOGITS, None), None)
    with envs.SGLANG_ENABLE_ASYNC_ASSERT.override(True):
        maybe_detect_inf(logits, "a draft")
    for temperature in (1e-6, 1.0, 1e6):
        assert not (logits / temperature).softmax(-1)[:, 3:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_that_is_not_asked_is_a_number_for_each_candidate(dtype: torch.dtype) -> None:
    for head, candidates in ((ZeroHead(), 1), (ZeroHead(3), 3)):
        computed = processor()._get_logits(torch.ones(5, 4, dtype=dtype), head, None)
        assert torch.equal(computed, torch.zeros(5, candidates))


def test_the_whole_vocabulary_is_sglangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogitsProcessor, "_get_logits", lambda self, *args, **more: (args, more))
    assert processor()._get_logits("states", "head", "metadata", use_logits_buffer=False) == (
        ("states", "head", "metadata"),
        {"use_logits_buffer": False},
    )
