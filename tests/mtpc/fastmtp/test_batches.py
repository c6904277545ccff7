"""Which positions of a conversation are examples."""

from __future__ import annotations

import torch

from mtpc.distill.conversations import Conversation
from mtpc.fastmtp.batches import collate, epoch_order


def conversation(length: int, start: int) -> Conversation:
    return Conversation(0, "chat", "", "", tuple(range(1, length + 1)), start, "stop")


def test_a_start_counts_when_its_first_token_and_all_its_drafts_are_answer() -> None:
    batch = collate([conversation(10, 4), conversation(7, 2)], steps=2, context=100)
    assert batch.tokens.tolist() == [list(range(1, 11)), [*range(1, 8), 0, 0, 0]]
    # Start i emits token i + 1 and drafts tokens i + 2 and i + 3.
    assert batch.chosen.tolist() == [[False] * 3 + [True] * 4, [False] + [True] * 3 + [False] * 3]


def test_the_context_cuts_a_conversation() -> None:
    batch = collate([conversation(10, 4)], steps=2, context=8)
    assert batch.tokens.shape == (1, 8)
    assert batch.chosen.nonzero()[:, 1].tolist() == [3, 4]


def test_a_short_answer_gives_no_example() -> None:
    batch = collate([conversation(6, 5)], steps=3, context=100)
    assert not batch.chosen.any()


def test_an_epoch_sees_every_conversation_once_in_an_order_of_its_own() -> None:
    first, second = epoch_order(50, 0, 3), epoch_order(50, 1, 3)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first == epoch_order(50, 0, 3)
    assert torch.tensor(first).ne(torch.tensor(epoch_order(50, 0, 4))).any()
