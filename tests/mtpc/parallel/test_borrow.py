"""Borrowed nodes against plain Python, and against the exact probabilities where positions are independent."""

from __future__ import annotations

import pytest
import torch

from mtpc.draft import TreeDraft
from mtpc.errors import MTPCError
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.tree import grow_tree
from tests.mtpc.parallel.test_tree import rows_of
from tests.oracles.borrowing import with_borrowed
from tests.oracles.cases import Case
from tests.oracles.processes import random_process
from tests.oracles.trees import as_draft, best_tree, prefix_probabilities

FIRST = torch.tensor([0, 2])


@pytest.mark.parametrize("kind", ["ff", "cp", "hmm", "btree"])
@pytest.mark.parametrize(("size", "count"), [(2, 1), (6, 2), (12, 5), (12, 0), (20, 8), (20, 19), (40, 15)])
def test_the_nodes_are_those_of_plain_python(kind: str, size: int, count: int) -> None:
    case = Case(kind, 5, 1 if kind == "ff" else 3, 3)
    draft = grow_tree(case.circuit, case.params(), FIRST, size, 4)
    more = borrow_nodes(draft, count)
    for row, tree in enumerate(rows_of(draft)):
        expected = with_borrowed(dict(zip(tree, draft.scores[row].exp().tolist(), strict=True)), count)
        assert rows_of(more)[row] == list(expected)
        assert more.scores[row].exp().tolist() == pytest.approx(list(expected.values()), abs=1e-12)


def test_of_independent_positions_the_scores_are_exact() -> None:
    case = Case("ff", 5, 1, 3)
    more = borrow_nodes(grow_tree(case.circuit, case.params(), FIRST, 12, 4), 5)
    for first, table, tree, scores in zip(FIRST.tolist(), case.tables(), rows_of(more), more.scores, strict=True):
        probabilities = prefix_probabilities(table, 4, first)
        assert scores.exp().tolist() == pytest.approx([probabilities[x] for x in tree], abs=1e-12)


def test_the_next_best_nodes_fill_what_is_left() -> None:
    """Of a chain, and of paths that are equally long, all; of one whose best nodes are borrowed as well, the others."""
    full = {(0,): 0.5, (1,): 0.3, (0, 0): 0.2, (0, 0, 1): 0.1, (2,): 0.05, (2, 2): 0.01}
    chain = {tuple([0] * length): 0.5**length for length in range(1, 7)}
    even = {(0,): 0.4, (1,): 0.3, (2,): 0.2, (3,): 0.09, (4,): 0.008, (5,): 0.002}
    part = {(0,): 0.5, (1,): 0.4, (0, 3): 0.3, (1, 3): 0.2, (1, 3, 1): 0.1, (1, 3, 2): 0.01}
    each = [as_draft(list(tree), tree) for tree in (full, chain, even, part)]
    together = TreeDraft(*(torch.cat(rows) for rows in zip(*each, strict=True)))
    assert rows_of(borrow_nodes(together, 2))[:3] == [[*list(full)[:4], (1, 0), (1, 0, 1)], list(chain), list(even)]
    assert rows_of(borrow_nodes(together, 3))[3] == list(part)
    assert rows_of(borrow_nodes(together, 3))[0] == [(0,), (1,), (0, 0), (1, 0), (0, 0, 1), (2,)]


@pytest.mark.parametrize("seed", range(4))
def test_impossible_continuations_still_make_a_tree(seed: int) -> None:
    process = random_process(3, 4, seed, zeros=True)
    probabilities = {x: process.probability(x) for x in sorted(process.conditionals, key=len)[1:]}
    tree = best_tree(probabilities, 20)
    (found,) = rows_of(borrow_nodes(as_draft(tree, probabilities), 7))
    assert len(set(found)) == 20
    assert found[:13] == tree[:13]


def test_so_many_cannot_be_borrowed() -> None:
    tree = as_draft([(0,), (1,)])
    for count in (-1, 2):
        with pytest.raises(
            MTPCError, match=rf"^cannot borrow {count} of 2 draft tree nodes: the number must be from 0 to 1"
        ):
            borrow_nodes(tree, count)
