"""What is drafted of a chosen length: nothing, the drafter's tokens, what would be copied, or a whole tree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree
from sglang_mtpc.draft_lengths import ChosenLength
from sglang_mtpc.step import BatchSteps
from tests.sglang_mtpc.stand_ins import VOCAB, Texts, batch_of

ROWS = 4


def begun(lengths: Any, chosen: ChosenLength) -> tuple[Any, Any]:
    """A batch of greedy requests, and its step, whose drafts get such a length."""
    lengths.choose = lambda: chosen
    batch, _ = batch_of(ROWS, "greedy")
    return batch, BatchSteps(7).begin(batch)


@pytest.mark.parametrize("length", [0, 6])
def test_a_tree_is_whole_or_not_there(length: int) -> None:
    lengths: Any = Texts()
    laps, reported, tree = list[str](), list[int](), Draft(torch.ones(ROWS, 6, dtype=torch.int64), None)
    lengths.controller.drafted_trees = reported.append
    batch, step = begun(lengths, ChosenLength(length, length))
    found = AdaptiveTree(lengths, lambda batch, step: tree, laps.append, VOCAB)(batch, step)
    assert found.tokens.shape == (ROWS, length)
    assert (reported, laps) == ([6] if length else [], ["lengths"])


@pytest.mark.parametrize(
    ("budget", "chosen", "asked"),
    [
        (3, ChosenLength(3, 5), 3),
        (3, ChosenLength(0, 5), None),
        (3, ChosenLength(0, 0), None),
        (0, ChosenLength(0, 5), 0),
        (0, ChosenLength(0, 0), None),
    ],
)
def test_who_drafts_a_chain(budget: int, chosen: ChosenLength, asked: int | None) -> None:
    """Where copies are all that there is, they are the drafter's own."""
    lengths, seen = Texts(budget), list[int]()

    def mixed(batch: Any, step: Any, copied: Any, own: int) -> Draft:
        seen.append(own)
        return Draft(torch.full((ROWS, 3), 9), None)

    batch, step = begun(lengths, chosen)
    tokens = AdaptiveChain(lengths, mixed, list[str]().append, VOCAB)(batch, step).tokens
    assert seen == ([] if asked is None else [asked])
    drafted = [9, 9, 9] if seen else [1, 2, 3]
    assert tokens[1].tolist() == [*drafted, 4, 5][: chosen.length]
