"""Which length all drafts of a batch have, and who drafts them."""

from __future__ import annotations

import pytest

from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.measured import TRIAL, StepTimes
from mtpc.draft_length.one_length import OneLength
from mtpc.prompt_lookup.table import CopyTable
from tests.mtpc.draft_length.test_batch import COST, LOOP, NEW, OWN, begun, line


def batch_of(*texts: list[int], cost: StepCost = COST, own: Own = OWN) -> OneLength:
    """A batch of requests that have just said the last token of their texts."""
    return begun(OneLength(own, 8, cost, CopyTable()), *texts)


def test_what_is_drafted_in_any_step_is_no_reason_against_it() -> None:
    """Where one length is common, and the serial part has drafted its first token before that length is chosen."""
    batch = batch_of(NEW, cost=line(0.02, 3.0), own=Own(3, serial=3))
    ways = [0, 1, 2, *[3] * 6], [1, 1, 2, *[3] * 6], [3] * 9, [0, *[3] * 8]
    assert [batch.common_length(8, [way]) for way in ways] == list(zip(ways, (0, 1, 3, 0), strict=True))


def test_where_one_length_is_common_copies_alone_are_a_way_as_well() -> None:
    """Where they bring as much as the drafter would, in less time: not beside texts of which nothing is copied."""
    drafts, copies = [0, 1, 2, *[3] * 6], [0] * 9
    for texts, expected in (([LOOP], (copies, 8)), ([NEW], (drafts, 3)), ([LOOP, *[NEW] * 7], (drafts, 3))):
        batch = batch_of(*texts, cost=line(0.02, 0.3), own=Own(3, serial=3))
        assert batch.common_length(8, [drafts, copies]) == expected
    assert batch_of(LOOP, cost=line(0.02, 0.0), own=Own(3, serial=3)).common_length(8, [drafts, copies])[0] is drafts


def test_copies_say_nothing_of_the_drafter() -> None:
    """Neither those that were right nor those that were not; what the drafter said itself does."""
    for own, said, higher in ((0, [4, 5, 6, 7], None), (0, [9], None), (2, [4, 5, 6, 7], True), (2, [9], False)):
        batch = batch_of(LOOP)
        batch.drafted([[4, 5, 6, 7]], own, 0.0)
        (request,) = batch.requests.values()
        before = request.typical
        request.said(said)
        assert request.typical == before if higher is None else (request.typical > before) == higher


def test_a_drafter_that_seems_worth_less_than_copies_is_tried_now_and_then() -> None:
    cost, ways = line(0.02, 0.1), ([0, 1, 2, *[3] * 6], [0] * 9)
    batch, chosen = OneLength(Own(3, serial=3), 8, cost, CopyTable(), times=StepTimes(cost)), []
    for step in range(200):
        batch.begin()
        batch.add(0, lambda: LOOP, [LOOP[step % 4]], False)
        way, length = batch.common_length(8, ways)
        batch.drafted([[50] * length], way[length], 0.0)  # never right
        chosen.append((way is ways[0], length))
    assert 0 < chosen.count((True, 1)) < 40  # what one pass drafts


@pytest.mark.parametrize("dear", [0.6, 8.0])
def test_a_drafter_that_seems_to_be_worth_little_is_tried(dear: float) -> None:
    """One whose drafts cannot be worth it is not."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, dear),))
    batch = OneLength(Own(2, serial=2), 6, cost, CopyTable((0.7,)), times=StepTimes(cost, clock=lambda: 0.0))
    tried = 0
    for step in range(40):
        batch.begin()
        for name in ("one", "other"):
            batch.add(name, lambda: [1, 2], [100 + step], False)
        _, length = batch.common_length(6, [range(7)])
        batch.drafted([[0] * length] * 2, length, 0.0)
        tried += length > 0
    assert 0 < tried <= TRIAL if dear < 1.0 else not tried  # what was tried in vain looks worse at once


def test_a_drafter_whose_first_pass_every_step_takes_is_tried_with_another() -> None:
    """On a device where SGLang drafts a token in any step, one pass would tell nothing."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 31.0)), drafting=((1, 0.6),))
    times = StepTimes(cost, clock=lambda: 0.0)
    batch, chosen = OneLength(Own(3, serial=3), 6, cost, CopyTable((0.7,)), times=times), set()
    for step in range(40):
        batch.begin()
        for name in ("one", "other"):
            batch.add(name, lambda: [1, 2], [100 + step], False)
        way, length = batch.common_length(6, [[1, 1, 2, *[3] * 4]])
        batch.drafted([[0] * length] * 2, way[length], batch.own.share(way[length]) - batch.own.share(1))
        chosen.add(length)
    assert chosen == {0, 2}


@pytest.mark.parametrize("texts", [[LOOP], [LOOP, LOOP]])
def test_what_becomes_of_the_draft_of_a_request_alone_changes_no_trust(texts: list[list[int]]) -> None:
    batch = batch_of(*texts, own=Own(0))
    assert batch.common_length(8, [[0] * 9])[1] > 0
    for row, request in batch.requests.items():
        batch.add(row, list, [99], False)
        assert request.copy.text[-1] == 99
    assert (batch.trust["copying"].factor < 1.0) == (len(texts) > 1)
