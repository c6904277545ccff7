"""Rows of a head that ranks divide: as of one rank, whichever rank had them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import HeadRows, Ranks
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.mtpc.target_head.ranks import COUNT, HEAD, SIZE, VOCAB, on_ranks


@pytest.mark.parametrize("tokens", [[0, 3, 12, 20, 13, 5, 19], [20], [4, 11, 2, 0]], ids=["both", "fewer", "one"])
def test_every_rank_has_its_share(tokens: list[int]) -> None:
    ids, each = torch.tensor(tokens), -(-len(tokens) // COUNT)
    states = torch.randn(5, SIZE)
    for number, (share, logits) in enumerate(
        on_ranks(lambda shard, ranks: ((rows := HeadRows.of(shard, ids, ranks)).share, rows(states)))
    ):
        own = HEAD[ids][number * each : (number + 1) * each]
        assert len(share) == each
        assert torch.equal(share[: len(own)], own)
        assert not share[len(own) :].any()
        torch.testing.assert_close(logits, states @ HEAD[ids].T)


def test_drafts_of_ranks_are_those_of_one() -> None:
    """Of requests with any draft vocabulary, or none."""
    languages = {"english": Ranking(tuple(range(9))), "french": Ranking((20, 3, 17, 5, 12, 11, 0))}
    vocabularies = DraftVocabularies(Rankings(VOCAB, languages), VocabularySettings(size=7))
    states, numbers = torch.randn(5, SIZE), torch.tensor([1, 0, 2, 1, 0])
    temperature, uniforms = torch.ones(5), torch.rand(5, dtype=torch.float64)

    def draft(shard: Tensor, ranks: Ranks) -> tuple[Tensor, ...]:
        logits = DraftLogits(vocabularies, shard, ranks=ranks)
        alone = logits(states[:1], numbers[:1])
        drawn = logits.drawn(states, temperature, uniforms, numbers)
        return logits(states, numbers), alone, logits.greedy(states, numbers), *drawn

    first, second = on_ranks(draft)
    for mine, other, expected in zip(first, second, draft(HEAD, Ranks()), strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(mine, expected)
