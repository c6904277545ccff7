"""Limits of requests: how they are read, and that no draft is longer, whoever drafts and how lengths are chosen."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mtpc.draft import MAX_DRAFTS
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS, StepCost
from mtpc.draft_length.limit import MAX_DRAFT_TOKENS, draft_limit, ignore_limits
from mtpc.prompt_lookup.table import CopyTable
from tests.mtpc.draft_length.test_controller import COST, LOOP, NEW, line

LIMITS, DRAFT = (0, 1, 2, MAX_DRAFTS), [4, 5, 6]
VOCABULARY = 1000
CHEAP = line(0.005, 0.01)


def test_what_is_read() -> None:
    for limit in (0, 1, 7):
        assert draft_limit({MAX_DRAFT_TOKENS: limit, "tenant": "a"}) == limit
    for nothing in (None, {}, {MAX_DRAFT_TOKENS: None}, {MAX_DRAFT_TOKENS: 10**9}, MAX_DRAFT_TOKENS, 7):
        assert draft_limit(nothing) == MAX_DRAFTS


def test_a_wrong_limit_is_ignored_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    for number, wrong in enumerate(("2", -1, 1e9, 2.0, True, [2], {"a": 1}), start=1):
        assert draft_limit({MAX_DRAFT_TOKENS: wrong}) == MAX_DRAFTS
        assert len(caplog.records) == number
    message = "A request's 'max_draft_tokens' is ignored: it must be a whole number, 0 or more, not -1."
    assert caplog.messages[1] == message


def test_a_limit_that_cannot_be_kept_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ignore_limits([MAX_DRAFTS], "a test has no limits")
        assert not caplog.records
        for _ in range(2):
            ignore_limits([MAX_DRAFTS, 3], "a test has no limits")
    assert caplog.messages == ["'max_draft_tokens' of requests is ignored: a test has no limits."]


def begun(cost: StepCost, own: int, text: list[int], copies: bool = True, greedy: bool = True) -> DraftLengths:
    """A batch of the same text with each limit; its texts go on as `DRAFT` where they repeat."""
    batch = DraftLengths(DraftBudget(own, steps=own), 8, cost, CopyTable(), VOCABULARY, copies=copies)
    batch.begin(greedy)
    for name, limit in enumerate(LIMITS):
        batch.add(name, lambda: text[:-1], text[-1:], False, limit=lambda limit=limit: limit)
    return batch


def test_a_limit_is_read_once() -> None:
    batch, read = DraftLengths(DraftBudget(0), 8, COST, CopyTable(), VOCABULARY), list[int]()
    for _ in range(2):
        batch.begin()
        batch.add("a", lambda: NEW, [1], False, limit=lambda: read.append(2) or 2)
    assert read == [2]


def test_no_draft_is_longer() -> None:
    """The drafter's own, cut or continued with copied tokens, or copied alone; sampled, greedy or with seeds."""
    size = len(LIMITS)
    for text, cost, greedy, seeded in (
        (text, cost, greedy, seeded)
        for text in (LOOP, NEW)
        for cost in (CHEAP, FREE_DRAFTS)
        for greedy in (True, False)
        for seeded in (True, False)
    ):
        for own, tokens in ((3, [DRAFT] * size), (0, [[]] * size)):
            batch = begun(cost, own, text, greedy=greedy)
            batch.plan(8)
            drafts = batch.cut(tokens, 8, [seeded] * size)
            whole = drafts[-1]
            assert len(whole) == (8 if text is LOOP else own)
            assert drafts == [whole[:limit] for limit in LIMITS]


def test_who_drafts_for_whom() -> None:
    """Nobody for a request without drafts; and where others are, it is not asked for what it would bring."""
    assert begun(CHEAP, 3, NEW).plan(8) == 3
    assert begun(CHEAP, 3, NEW).uncopied(3, 8) == [0, 1, 2, 3]
    assert begun(CHEAP, 3, LOOP).uncopied(3, 8) == [0] * len(LIMITS)
    for text, copies in ((NEW, True), (LOOP, True), (LOOP, False)):
        batch = DraftLengths(DraftBudget(3, steps=3), 8, CHEAP, CopyTable(), VOCABULARY, copies=copies)
        batch.add("none", lambda text=text: text, [], False, limit=lambda: 0)
        assert batch.plan(8) == 0
        assert batch.cut([[]], 8, [False]) == [[]]
    batch = DraftLengths(DraftBudget(3, steps=3), 8, CHEAP, CopyTable(), VOCABULARY)
    batch.add("none", lambda: NEW, [], False, limit=lambda: 0)
    batch.add("copied", lambda: LOOP, [], False)
    assert batch.plan(8) == 0  # all that may be drafted is copied


def test_what_is_copied_is_limited() -> None:
    chances = begun(CHEAP, 3, LOOP).copied(5).chances
    assert [int((row > 0).sum()) for row in chances] == [0, 1, 2, 5]


def test_a_common_length_is_that_of_those_who_may_have_it() -> None:
    """A limited request brings nothing beyond its limit: alone it gets no more, and among many it decides nothing."""
    drafts = [0, 1, 2, *[3] * 6]
    for limit, others, expected in ((0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1, 8), (2, 7, 8)):
        batch = DraftLengths(DraftBudget(3, steps=3), 8, line(0.02, 0.02), CopyTable(), VOCABULARY)
        batch.begin()
        batch.add("limited", lambda: LOOP, [], False, limit=lambda limit=limit: limit)
        for name in range(others):
            batch.add(name, lambda: LOOP, [], False)
        assert batch.common_length(8, [drafts, [0] * 9])[1] == expected
    length: Any = begun(line(0.1, 0.02), 3, NEW, copies=False).common_length(3, [drafts])[1]
    alone = DraftLengths(DraftBudget(3, steps=3), 8, line(0.1, 0.02), CopyTable(), VOCABULARY, copies=False)
    alone.add("a", lambda: NEW, [], False)
    assert length < alone.common_length(3, [drafts])[1]


def test_drafts_of_a_common_length_are_continued_up_to_the_limit() -> None:
    batch = begun(CHEAP, 3, LOOP)
    whole = [4, 5, 6, 7, 4, 5, 6, 7]
    assert batch.continued([DRAFT] * len(LIMITS), 8) == [whole[:limit] for limit in LIMITS]
    batch.drafted([[*DRAFT[:limit], *[0] * (3 - limit)] for limit in LIMITS], 3)
    for request, limit in zip(batch.requests.values(), LIMITS, strict=True):
        before = request.rate
        request.observe([4, 99])
        assert (request.rate == before) == (limit == 0)  # what was never drafted is not counted as wrong
        assert (request.rate > before) == (limit == 1)
