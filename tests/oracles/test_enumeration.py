"""The enumeration of circuits against results by hand, and against a recursive form of itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.oracles.cases import ALL_CASES, KINDS, ONE_OF_EACH, Case, cases_of
from tests.oracles.enumeration import binary_tree, btree_by_recursion, enumerate_windows


def test_every_size_of_the_issue_is_covered() -> None:
    assert {(c.kind, c.window) for c in ALL_CASES} == set(product(("ff", "cp", "hmm", "btree"), range(1, 7)))
    assert {(c.kind, c.rank) for c in ALL_CASES if c.window == 6} >= {("hmm", 3), ("btree", 3), ("cp", 3)}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_normalised(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            for table in case.tables():
                assert table.total() == pytest.approx(1.0, abs=1e-12)


def test_mixture_by_hand() -> None:
    leaves = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]])
    table = enumerate_windows("cp", leaves, [np.array([0.25, 0.75])])
    assert table[0, 1] == pytest.approx(0.25 * 0.9 * 0.3 + 0.75 * 0.2 * 0.6)


def test_chain_by_hand() -> None:
    leaves = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]])
    transitions = np.array([[[0.1, 0.9], [0.6, 0.4]]])
    table = enumerate_windows("hmm", leaves, [np.array([0.25, 0.75]), transitions])
    from_first = 0.25 * 0.9 * (0.1 * 0.3 + 0.9 * 0.6)
    from_second = 0.75 * 0.2 * (0.6 * 0.3 + 0.4 * 0.6)
    assert table[0, 1] == pytest.approx(from_first + from_second)


def test_tree_layout_by_hand() -> None:
    assert binary_tree(1) == ([-1], [0])
    assert binary_tree(2) == ([-1], [0, 0])
    assert binary_tree(3) == ([-1, 0], [1, 1, 0])
    assert binary_tree(4) == ([-1, 0, 0], [1, 1, 2, 2])
    assert binary_tree(5) == ([-1, 0, 0, 1], [3, 3, 1, 2, 2])
    assert binary_tree(6) == ([-1, 0, 0, 1, 2], [3, 3, 1, 4, 4, 2])


@pytest.mark.parametrize("window", range(1, 17))
def test_tree_has_as_many_nodes_as_parameters(window: int) -> None:
    assert len(binary_tree(window)[0]) == max(window - 1, 1)


@pytest.mark.parametrize("case", [c for c in ALL_CASES if c.kind == "btree" and c.rank == 2], ids=str)
def test_tree_by_assignments_equals_tree_by_recursion(case: Case) -> None:
    params, table = case.params(), case.tables()[0]
    leaves, (root, inner) = params.leaves[0].exp().numpy(), [w[0].exp().numpy() for w in params.sums]
    for x in case.windows()[:50].tolist():
        assert btree_by_recursion(x, leaves, root, inner) == pytest.approx(table.joint[tuple(x)], abs=1e-14)


@pytest.mark.parametrize("case", ONE_OF_EACH[1:], ids=str)
def test_components_make_positions_dependent(case: Case) -> None:
    """The chi-square tests would say nothing about joint sampling if the joint were nearly a product."""
    table = case.tables()[0]
    conditional = np.stack([table.conditional((v,)) for v in range(case.vocabulary)])
    assert np.abs(conditional - conditional.mean(0)).max() > 0.01
