"""Draft trees against brute force: the most probable of all prefixes, drafted in a table of all windows."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from mtpc.draft import DraftContext, TreeDraft
from mtpc.errors import MTPCError
from mtpc.parallel import joint
from mtpc.parallel.tree import grow_tree, level_widths
from tests.mtpc.parallel.windows import VOCAB, WINDOW, inputs, make_circuit_part
from tests.oracles import circuit_ops
from tests.oracles.cases import ALL_CASES, Case, cast, enumerate_rows
from tests.oracles.trees import Prefix, best_tree, prefix_probabilities, prefixes_of

CASES = [case for case in ALL_CASES if case.window > 1 and case.rank == (1 if case.kind == "ff" else 3)]
ROWS = 2


def rows_of(draft: TreeDraft) -> list[list[Prefix]]:
    """The prefixes of each row's tree."""
    return [prefixes_of(*row) for row in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True)]


def sizes(case: Case, depth: int) -> list[int]:
    """From one node to all prefixes, as far as that stays quick."""
    room = sum(case.vocabulary**level for level in range(1, depth + 1))
    return sorted({1, 2, 5, 12, room} & set(range(1, min(room, 40) + 1)))


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_most_probable_of_all_prefixes(case: Case, given: bool) -> None:
    """In the order of their probability; no limits, so nothing is cut."""
    first = torch.tensor([0, case.vocabulary - 1]) if given else None
    depth = case.window - given
    for size in sizes(case, depth):
        draft = grow_tree(case.circuit, case.params(), first, size, depth)
        assert draft.tokens.dtype == draft.parents.dtype == torch.int64
        for row, (table, tree) in enumerate(zip(case.tables(), rows_of(draft), strict=True)):
            probabilities = prefix_probabilities(table, depth, int(first[row]) if first is not None else None)
            drafted = [probabilities[x] for x in tree]
            assert len(set(tree)) == size
            assert drafted == pytest.approx(sorted(probabilities.values(), reverse=True)[:size], abs=1e-12)
            assert draft.scores[row].exp().tolist() == pytest.approx(drafted, abs=1e-12)


@pytest.mark.parametrize("max_children", [1, 2, 3])
@pytest.mark.parametrize("case", [c for c in CASES if (c.window, c.vocabulary) == (4, 3)], ids=str)
def test_limited_children_and_depth(case: Case, max_children: int) -> None:
    """Trees equal those of greedy growth, one node at a time, with at most `max_children` children per node."""
    for depth in (2, 3):
        size = min(9, sum(max_children**level for level in range(1, depth + 1)))
        draft = grow_tree(case.circuit, case.params(), torch.tensor([1, 2]), size, depth, max_children)
        for first, table, tree in zip((1, 2), case.tables(), rows_of(draft), strict=True):
            assert tree == best_tree(prefix_probabilities(table, depth, first), size, max_children)


@pytest.mark.parametrize("kind", ["ff", "cp", "hmm", "btree"])
def test_no_other_tree_is_expected_to_accept_more(kind: str) -> None:
    """Against all prefix-closed trees of the size, not only those that grow by probability."""
    case = Case(kind, 4, 1 if kind == "ff" else 2, 2)
    draft = grow_tree(case.circuit, case.params(), torch.tensor([0, 1]), 5, 3)
    for first, table, tree in zip((0, 1), case.tables(), rows_of(draft), strict=True):
        probabilities = prefix_probabilities(table, 3, first)
        closed = [t for t in combinations(probabilities, 5) if all(len(x) == 1 or x[:-1] in t for x in t)]
        assert len(closed) > 20
        best = max(sum(probabilities[x] for x in t) for t in closed)
        assert sum(probabilities[x] for x in tree) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_window_draws_the_tree_of_the_conditioned_circuit(circuit: str, token_input: bool) -> None:
    """At each row's temperature, and at 1 in the rows of greedy requests."""
    part = make_circuit_part(circuit, window=4, token_input=token_input).double()
    hidden, token, temperature, _ = inputs(5, part)
    trees = rows_of(part.draft_tree(DraftContext.of_target(hidden.double(), token), temperature, 15, None))
    positive = torch.where(temperature > 0, temperature, 1.0)
    params = circuit_ops.temper(part.head(hidden.double(), token), positive)
    for row, table in enumerate(enumerate_rows(circuit, params)):
        probabilities = prefix_probabilities(table, 3, None if token_input else int(token[row]))
        drafted = [probabilities[x] for x in trees[row]]
        assert drafted == pytest.approx(sorted(probabilities.values(), reverse=True)[:15], rel=1e-4)
    untempered = part.draft_tree(DraftContext.of_target(hidden.double(), token), None, 15, None)
    assert [trees[2], trees[4]] == [rows_of(untempered)[2], rows_of(untempered)[4]]


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_one_child_a_node_is_the_greedy_chain(circuit: str, token_input: bool) -> None:
    part = make_circuit_part(circuit, token_input=token_input)
    hidden, token, _, _ = inputs(16, part)
    for size in (1, WINDOW - 1):
        draft = part.draft_tree(DraftContext.of_target(hidden, token), None, size, 1)
        assert torch.equal(
            draft.tokens, part.draft(DraftContext.of_target(hidden, token), None, None, size, "greedy").tokens
        )
        assert draft.parents.tolist() == [list(range(-1, size - 1))] * 16


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_rows_are_independent_and_a_depth_is_kept(circuit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where memory is for one request at a time."""
    part = make_circuit_part(circuit)
    hidden, token, temperature, _ = inputs(6, part)
    context = DraftContext.of_target(hidden, token)
    together = rows_of(part.draft_tree(context, temperature, 20, 4, depth=3))
    alone = [
        rows_of(
            part.draft_tree(
                DraftContext.of_target(hidden[b : b + 1], token[b : b + 1]), temperature[b : b + 1], 20, 4, depth=3
            )
        )[0]
        for b in range(6)
    ]
    assert together == alone
    assert max(len(x) for tree in together for x in tree) == 3
    assert part.draft_tree(DraftContext.of_target(hidden[:0], token[:0]), None, 20, None).tokens.shape == (0, 20)
    monkeypatch.setattr(joint, "MAX_PROBS", 1)
    assert rows_of(part.draft_tree(context, temperature, 20, 4, depth=3)) == together


@pytest.mark.parametrize("token_input", [False, True])
@torch.inference_mode()
def test_a_tree_is_as_deep_as_the_window_unless_less_is_asked_for(token_input: bool) -> None:
    part = make_circuit_part("hmm", token_input=token_input)
    hidden, token, _, _ = inputs(1, part)
    for depth, deepest in ((None, WINDOW - 1), (WINDOW + 3, WINDOW - 1), (WINDOW - 1, WINDOW - 1), (2, 2), (1, 1)):
        draft = part.draft_tree(DraftContext.of_target(hidden, token), None, deepest, 1, depth=depth)
        assert draft.parents.tolist() == [list(range(-1, deepest - 1))]
        with pytest.raises(MTPCError, match=f"a draft tree of {deepest + 1} nodes does not fit: depth {deepest}"):
            part.draft_tree(DraftContext.of_target(hidden, token), None, deepest + 1, 1, depth=depth)


@pytest.mark.parametrize("kind", ["ff", "cp", "hmm", "btree"])
def test_impossible_and_certain_continuations_still_make_a_tree(kind: str) -> None:
    """Ties throughout: one token is certain, the others impossible, so parents and children are equally probable."""
    case = Case(kind, 5, 1 if kind == "ff" else 3, 4)
    params = case.params()
    certain = torch.full_like(params.leaves, -torch.inf)
    certain[..., 2] = 0.0
    for dtype in (torch.float32, torch.float64):
        one_text = cast(params._replace(leaves=certain), dtype)
        draft = grow_tree(case.circuit, one_text, torch.tensor([2, 2]), 30, 4)
        for tree in rows_of(draft):
            assert tree[:4] == [(2,), (2, 2), (2, 2, 2), (2, 2, 2, 2)]
            assert len(set(tree)) == 30


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"size": 0, "depth": 3}, "a size of at least 1, not 0"),
        ({"size": 4, "depth": 3, "max_children": 0}, "a max_children of at least 1, not 0"),
        ({"size": 4, "depth": 3, "max_children": 1}, "4 nodes does not fit: depth 3, max_children 1 leave room for 3"),
    ],
)
def test_limits_that_leave_no_tree(limits: dict[str, int], message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        level_widths(vocabulary=VOCAB, **limits)


def test_widths_of_the_levels() -> None:
    assert level_widths(5, 7, 3) == [3, 4, 3, 2, 1]
    assert level_widths(5, 2, 3) == [3, 4]
    assert level_widths(7, 3, 9, max_children=2) == [2, 4, 5]
