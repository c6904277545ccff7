"""Logits of an output head that is the drafter's own, on one rank and on two."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.target_head.drafter_head import DrafterHeadLogits
from mtpc.target_head.rows import Ranks
from mtpc.target_head.shared import SharedHead
from tests.mtpc.target_head.ranks import HEAD, SIZE, VOCAB, on_ranks

IDS = torch.tensor([0, 2, 3, 8, 20])
ROWS = torch.randn(len(IDS), SIZE, generator=torch.Generator().manual_seed(2))


def drafted(shard: Tensor, ranks: Ranks) -> tuple[Tensor, ...]:
    """Logits, and what is drafted by them; the target's shard is not read."""
    own = DrafterHeadLogits(ROWS, IDS, VOCAB, ranks)
    states = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(3))
    uniforms = torch.linspace(0.05, 0.95, 6).double()
    return own(states), own.greedy(states), *own.drawn(states, torch.ones(6), uniforms), own.head().logits(states)


def test_they_are_those_of_the_head_over_its_tokens() -> None:
    logits, greedy, tokens, probs, rows = drafted(HEAD, Ranks())
    states = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(3))
    head = SharedHead(HEAD, ROWS, IDS)
    torch.testing.assert_close(logits, head.spread(head.logits(states), -torch.inf))
    assert torch.equal(greedy, logits.argmax(1))
    torch.testing.assert_close(probs, logits.softmax(1))
    assert torch.isin(tokens, IDS).all()
    torch.testing.assert_close(rows, head.logits(states))


def test_ranks_share_the_work_and_draft_the_same() -> None:
    first, second = on_ranks(drafted)
    for mine, other, expected in zip(first, second, drafted(HEAD, Ranks()), strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(mine, expected)


def test_the_log_says_what_is_drafted_from() -> None:
    assert DrafterHeadLogits(ROWS, IDS, VOCAB).summary == "drafting through its own output head from 5 of 21 tokens"
