"""Which length all drafts of a batch have, and who drafts them."""

from __future__ import annotations

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.table import CopyTable
from tests.mtpc.draft_length.test_controller import COST, LOOP, NEW, OWN, VOCABULARY, begun, line


def batch_of(*texts: list[int], cost: StepCost = COST, own: DraftBudget = OWN) -> DraftLengths:
    """Return a batch of requests that have just emitted the last token of their texts."""
    return begun(DraftLengths(own, 8, cost, CopyTable(), VOCABULARY), *texts)


def test_where_one_length_is_common_copies_alone_are_a_way_as_well() -> None:
    """Prompt lookup drafts alone if that gives as many tokens as the drafter in less time.

    It does not in a batch with many texts that have nothing to copy.
    """
    drafts, copies = [0, 1, 2, *[3] * 6], [0] * 9
    for texts, expected in (([LOOP], (copies, 8)), ([NEW], (drafts, 3)), ([LOOP, *[NEW] * 7], (drafts, 3))):
        batch = batch_of(*texts, cost=line(0.02, 0.2), own=DraftBudget(3, steps=3))
        assert batch.common_length(8, [drafts, copies]) == expected
    assert (
        batch_of(LOOP, cost=line(0.02, 0.0), own=DraftBudget(3, steps=3)).common_length(8, [drafts, copies])[0]
        is drafts
    )


def test_copies_say_nothing_of_the_drafter() -> None:
    """Neither accepted nor rejected copies change the request's acceptance rate; the drafter's own tokens do."""
    for own, emitted, higher in ((0, [4, 5, 6, 7], None), (0, [9], None), (2, [4, 5, 6, 7], True), (2, [9], False)):
        batch = batch_of(LOOP)
        batch.drafted([[4, 5, 6, 7]], own)
        (request,) = batch.requests.values()
        before = request.rate
        request.observe(emitted)
        assert request.rate == before if higher is None else (request.rate > before) == higher


def test_a_tree_is_drafted_whole_or_not_at_all() -> None:
    """Of 8 nodes on 3 levels, whose verification costs as much as 8 tokens."""
    for token, expected in ((0.02, 8), (0.3, 0)):
        batch = batch_of(NEW, cost=line(token, 0.1), own=DraftBudget(3))
        batch.copies = False
        _, length = batch.common_length(8, [[0, 1, 2, *[3] * 6]], shortest=8)
        assert length == expected
        batch.drafted_trees(3)
        (request,) = batch.requests.values()
        before = request.rate
        request.observe([1, 2, 3, 4])
        assert request.rate > before
