"""Logits of a batch whose requests have several rows each, or one, and maps of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtpc.vocabulary.heads import DraftVocabularies, VocabularySettings
from mtpc.vocabulary.logits import DraftLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from sglang_mtpc.models.fastmtp import DraftLogitsProcessor, LogitsProcessor

RANKINGS = Rankings(6, {"low": Ranking((0, 1, 2)), "high": Ranking((3, 4, 5))})
HEAD = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def processor(maps: Tensor | None) -> Any:
    """One that drafts from two vocabularies of three tokens, outside of an engine."""
    found = DraftLogitsProcessor.__new__(DraftLogitsProcessor)
    nn.Module.__init__(found)
    found.draft_logits = DraftLogits(DraftVocabularies(RANKINGS, VocabularySettings(size=3)), HEAD)
    found.maps = maps
    return found


@pytest.mark.parametrize("each", [1, 4])
def test_rows_of_a_request_share_its_map(each: int) -> None:
    maps = torch.tensor([1, 0, 1, 7])  # the last is of no request of the batch
    one = processor(maps)
    one.requests = 3
    states = torch.randn(3 * each, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = one._get_logits(states, None, None)
    assert found.dtype == torch.float32
    for row, logits in enumerate(found):
        ids = [(0, 1, 2), (3, 4, 5)][maps[row // each]]
        assert logits.isfinite().nonzero()[:, 0].tolist() == list(ids)
        expected = states[row] @ HEAD[list(ids)].bfloat16().T
        torch.testing.assert_close(logits[list(ids)], expected.float())


def test_one_map_for_all() -> None:
    one = processor(None)
    found = one._get_logits(torch.ones(5, 4), None, None)
    assert found.isfinite().all(0).tolist() == [True] * 3 + [False] * 3


def test_the_whole_vocabulary_is_sglangs(monkeypatch: pytest.MonkeyPatch) -> None:
    one = processor(None)
    one.draft_logits = None
    monkeypatch.setattr(LogitsProcessor, "_get_logits", lambda self, *args, **more: (args, more))
    assert one._get_logits("states", "head", "metadata", use_logits_buffer=False) == (
        ("states", "head", "metadata"),
        {"use_logits_buffer": False},
    )
