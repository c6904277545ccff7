"""Which positions of a conversation are examples."""

from __future__ import annotations

import torch

from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.conversation_batches import collate, epoch_batches, sample_starts


def conversation(length: int, start: int) -> Conversation:
    return Conversation(0, "chat", "", "", tuple(range(1, length + 1)), start, "stop")


def test_a_start_counts_when_its_first_token_and_all_its_drafts_are_answer() -> None:
    batch = collate([conversation(10, 4), conversation(7, 2)], steps=2, context=100)
    assert batch.tokens.tolist() == [list(range(1, 11)), [*range(1, 8), 0, 0, 0]]
    # Start i emits token i + 1 and drafts tokens i + 2 and i + 3.
    assert batch.chosen.tolist() == [[False] * 3 + [True] * 4, [False] + [True] * 3 + [False] * 3]


def test_from_all_text_a_start_counts_wherever_its_drafts_are_text() -> None:
    batch = collate([conversation(10, 4), conversation(7, 2)], steps=2, context=100, learn_from="all")
    assert batch.chosen.tolist() == [[True] * 7, [True] * 4 + [False] * 3]


def test_the_context_cuts_a_conversation() -> None:
    batch = collate([conversation(10, 4)], steps=2, context=8)
    assert batch.tokens.shape == (1, 8)
    assert batch.chosen.nonzero()[:, 1].tolist() == [3, 4]


def test_a_short_answer_gives_no_example() -> None:
    batch = collate([conversation(6, 5)], steps=3, context=100)
    assert not batch.chosen.any()
    assert not collate([conversation(3, 1)], steps=3, context=100, learn_from="all").chosen.any()


def test_some_starts_are_a_run_of_those_that_count_and_another_one_every_time() -> None:
    chosen = torch.zeros(2, 200, dtype=torch.bool)
    chosen[0, 20:180], chosen[1, 7] = True, True
    runs = [sample_starts(chosen, 0.25, 3, update) for update in range(8)]
    for run in runs:
        (places,) = run[0].nonzero(as_tuple=True)
        assert len(places) == 40
        assert places[-1] - places[0] == 39
        assert not (run & ~chosen).any()
        assert run[1].any(), "one at least"
    assert len({int(run[0].float().argmax()) for run in runs}) > 4
    assert torch.equal(sample_starts(chosen, 0.25, 3, 5), runs[5])
    assert torch.equal(sample_starts(chosen, 1.0, 3, 5), chosen)


def test_an_epoch_sees_every_conversation_once_in_an_order_of_its_own() -> None:
    lengths = torch.randint(10, 500, (50,)).tolist()
    first, second = (epoch_batches(lengths, 4, epoch, 3) for epoch in (0, 1))
    for batches in (first, second):
        assert sorted(i for batch in batches for i in batch) == list(range(50))
    assert first != second
    assert first == epoch_batches(lengths, 4, 0, 3)
    assert first != epoch_batches(lengths, 4, 0, 4)


def test_updates_have_like_many_tokens_and_little_padding_and_are_not_sorted() -> None:
    lengths = torch.randint(10, 500, (4000,)).tolist()
    batches = epoch_batches(lengths, 4, 0, 0)
    longest = [max(lengths[i] for i in batch) for batch in batches]
    padded = sum(len(batch) * length for batch, length in zip(batches, longest, strict=True))
    sizes = [sum(lengths[i] for i in batch) for batch in batches]
    mean = 4 * sum(lengths) / len(lengths)
    assert sum(0.7 * mean < size < 1.3 * mean for size in sizes) > 0.95 * len(sizes)
    assert max(sizes) < 1.5 * mean
    assert padded < 1.05 * sum(lengths)
    assert abs(float(torch.corrcoef(torch.tensor([longest[1:], longest[:-1]], dtype=torch.float32))[0, 1])) < 0.1
