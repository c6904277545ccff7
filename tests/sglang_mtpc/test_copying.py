"""What a batch of SGLang's requests would copy, whatever order they come in, and when a text is forgotten."""

from __future__ import annotations

import gc
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.mixture import Copied, doubted
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.copying import Chosen, WorkerCopying, drafted, lengthened, nothing

CPU, TABLE = torch.device("cpu"), CopyTable((0.2, 0.5, 0.8))


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(prompt: list[int]) -> Any:
    return Request(rid=str(prompt), origin_input_ids=array("q", prompt), output_ids=array("q"))


def test_the_text_goes_on_as_before() -> None:
    copying = WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4)
    one, other = request([1, 2, 3, 4, 1, 2]), request([7, 8, 9])
    tokens, chances = copying.copied([other, one], 3)
    assert tokens[1].tolist() == [3, 4, 1]
    assert chances[1].tolist() == pytest.approx([doubted(chance) for chance in TABLE.along(2, 3)])
    assert chances[0].tolist() == [0.0, 0.0, 0.0]
    one.output_ids.extend([3, 9])
    other.output_ids.extend([8])
    tokens, chances = copying.copied([one, other], 2)  # the match is of prompt and output
    assert tokens[1].tolist() == [9, 8]
    assert not chances[0].any()
    assert tokens.dtype == torch.int64
    assert chances.dtype == torch.float32


def test_what_was_said_is_learned_from() -> None:
    """Chances are those of `CopyRequest`, told of the same text in the same parts."""
    copying, one, plain = (
        WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4),
        request([1, 2, 1]),
        CopyRequest(TABLE, [1, 2, 1]),
    )
    for said in ([2, 1, 2], [1], [5], [1, 2, 7], []):
        expected = plain.propose(4)
        tokens, chances = copying.copied([one], 4)
        assert tokens[0].tolist() == expected.tokens
        assert torch.equal(chances[0], torch.tensor([doubted(chance) for chance in expected.chances]))
        one.output_ids.extend(said)
        plain.append(said)


def test_a_request_that_is_gone_is_forgotten() -> None:
    copying, one = WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4), request([1, 1])
    copying.copied([one], 1)
    assert len(copying.batch.requests) == 1
    del one
    gc.collect()
    assert not copying.batch.requests


COST = StepCost(plain=((1, 1.0),), verifying=((2, 1.1), (40, 2.0)), fixed=True)


def nothing_copied(rows: int) -> Copied:
    return Copied(torch.zeros(rows, 8, dtype=torch.int64), torch.zeros(rows, 8))


def test_all_drafts_are_as_long_as_pays() -> None:
    """Long where every text repeats itself, none where no text does, and so for the whole batch."""
    copying = WorkerCopying(CopyTable((0.2, 0.5, 0.99)), torch.device("cpu"), own=Own(0), longest=8, cost=COST)
    repeats, others = request([1, 2, 3, 4, 5] * 4), [request([6, 7, 8]), request([8, 7])]
    copying.copied([repeats, request([1, 2] * 9)], 8)
    assert copying.length(8) == (0, 8)
    copying.copied(others, 8)
    assert copying.length(8) == (0, 0)
    copying.copied([repeats, others[0]], 8)
    assert 0 < copying.length(8).length <= 8
    draft = Draft(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.rand(2, 3, 9))
    assert draft.probs is not None
    cut = copying.completed(draft, nothing_copied(2), Chosen(0, 2))
    assert (cut.tokens.tolist(), cut.probs.shape) == ([[1, 2], [4, 5]], (2, 2, 9))  # type: ignore[union-attr]


@pytest.mark.parametrize("stated", [True, False])
def test_a_request_alone_is_cut_once_it_is_drafted(stated: bool) -> None:
    """To what its own chances are worth, and it goes on as a copy only where all of it would have been copied."""
    lengths, cost = [], COST.model_copy(update={"drafting": ((1, 0.01),)})
    for tokens, peaks in (([1, 2, 3], 0.9), ([1, 2, 9], 0.9), ([9, 8, 7], 1e-9)):
        copying = WorkerCopying(CopyTable((0.2, 0.5, 0.9)), CPU, Own(3), 8, cost)
        copied = copying.copied([request([5, 1, 2, 3, 4, 6, 7, 8, 9, 0, 5])], 8, not stated)
        chosen = copying.length(8)
        assert chosen == (3, 8)
        probs = torch.full((1, 3, 10), 0.1) if stated else None
        draft = copying.completed(Draft(torch.tensor([tokens]), probs, torch.full((1, 3), peaks)), copied, chosen)
        lengths.append(draft.tokens.shape[1])
        assert draft.tokens.tolist() == [[*tokens, *copied.tokens[0, 3:].tolist()][: lengths[-1]]]
        assert (None if draft.probs is None else tuple(draft.probs.shape)) == ((1, lengths[-1], 10) if stated else None)
    assert lengths == [8, 3, stated]  # by this table a first token that is drawn costs nothing


@pytest.mark.parametrize(
    ("own", "cost", "requests", "asks"),
    [
        (Own(3, serial=3), COST, 1, True),
        (Own(3, serial=3), COST, 2, False),
        (Own(3, serial=3), None, 1, False),
        (Own(3, serial=2), COST, 1, False),
        (Own(3), COST, 1, False),
    ],
)
def test_who_is_asked_after_each_token(own: Own, cost: StepCost | None, requests: int, asks: bool) -> None:
    copying = WorkerCopying(TABLE, CPU, own, 8, cost)
    copying.copied([request([number, 7, 8]) for number in range(requests)], 8)
    copying.length(8)
    assert copying.asks == asks


def test_a_layer_may_go_on_beyond_its_drafts_while_they_are_likely() -> None:
    copying = WorkerCopying(TABLE, CPU, Own(3, serial=3, further=5), 8, COST)
    for peak, most in ((0.95, 8), (0.1, 1)):
        copying.copied([request([6, 7, 8])], 8)
        assert copying.length(8) == (8, 8)
        made = 1
        while copying.goes_on(torch.tensor([made]), torch.tensor([peak])):
            made += 1
        assert made == most


@pytest.mark.parametrize("fixed", [True, False])
def test_what_the_first_rank_has_timed_is_believed(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the table is to stand as it is."""
    monkeypatch.setattr("sglang_mtpc.copying.told_by_first_rank", lambda _: (5.0, 5.0))
    table, cost = CopyTable((0.2, 0.5, 0.99)), COST.model_copy(update={"fixed": fixed})
    copying, repeats = WorkerCopying(table, torch.device("cpu"), Own(0), 8, cost), request([1, 2, 3, 4, 5] * 4)
    copied = copying.copied([repeats], 8)
    expected = cost if fixed else cost.corrected(5.0, 5.0)
    assert copying.batch.prices.cost.model_dump() == expected.model_dump()
    assert copying.length(8) == (0, 8)
    copying.completed(Draft(torch.tensor([[]], dtype=torch.int64), None), copied, Chosen(0, 8))
    assert copying.batch.timed.times is None or copying.batch.timed.times.handed == {hash(repeats.rid): 8}


@pytest.mark.parametrize("alone", [True, False])
def test_a_drafter_that_is_wrong_drafts_no_more_until_it_may_be_right_again(alone: bool) -> None:
    copying = WorkerCopying(CopyTable((0.01,)), torch.device("cpu"), Own(3), 3, COST)
    requests = [request([1, 2, 3]), request([4, 5, 6])][: 1 if alone else 2]
    drafted = []
    for step in range(60):
        copied = copying.copied(requests, 3)
        chosen = copying.length(3)
        drafted.append(chosen.own)
        rows = torch.full((len(requests), chosen.own), 500)
        copying.completed(Draft(rows, None, torch.full(rows.shape, 0.5) if chosen.own else None), copied, chosen)
        for number, one in enumerate(requests):
            one.output_ids.append(10 + 100 * number + step)
    assert drafted[0] == 3
    assert 0 < drafted.count(0) < 60


def test_without_a_cost_all_drafts_have_one_length() -> None:
    copying, one = WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4), request([6, 7, 8])
    copied = copying.copied([one], 4)
    assert copying.length(4) == (0, 4)
    draft = Draft(torch.tensor([[1, 2, 3]]), None)
    assert copying.completed(draft, copied, Chosen(0, 4)).tokens.tolist() == [[1, 2, 3, copied.tokens[0, 3]]]


@pytest.mark.parametrize("stated", [True, False])
def test_what_follows_a_draft_is_certain(stated: bool) -> None:
    copied = Copied(torch.tensor([[1, 2, 3, 0], [0, 0, 0, 0]]), torch.tensor([[0.9] * 4, [0.0] * 4]))
    probs = torch.rand(2, 2, 5).softmax(-1) if stated else None
    longer = lengthened(Draft(torch.tensor([[1, 2], [4, 3]]), probs), copied)
    assert longer.tokens.tolist() == [[1, 2, 3, 0], [4, 3, 0, 0]]
    if probs is None:
        assert longer.probs is None
        return
    assert longer.probs is not None
    assert torch.equal(longer.probs[:, :2], probs)
    assert torch.equal(longer.probs[:, 2:], torch.nn.functional.one_hot(longer.tokens[:, 2:], 5).float())


def test_a_draft_that_is_long_enough_stays_as_it_is() -> None:
    draft, copied = (
        Draft(torch.tensor([[1, 2]]), torch.ones(1, 2, 5)),
        Copied(torch.ones(1, 2).long(), torch.ones(1, 2)),
    )
    assert all(torch.equal(a, b) for a, b in zip(lengthened(draft, copied)[:2], draft[:2], strict=True))


@pytest.mark.parametrize(
    ("own", "waits", "no_wait"),
    [
        (Own(3, serial=3), [0, 1, 2, 3, 3], [1, 1, 2, 3, 3]),
        (Own(4), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        (Own(3, serial=2), [0, 3, 3, 3, 3], [3, 3, 3, 3, 3]),
        (Own(0), [0] * 5, [0] * 5),
    ],
)
def test_what_is_drafted_for_a_length(own: Own, waits: list[int], no_wait: list[int]) -> None:
    """A first draft that does not wait is made a step before, and with a window part behind it everything is."""
    made = WorkerCopying(TABLE, torch.device("cpu"), own, longest=4)
    assert made.ways == [waits, *[[0] * 5] * (own.count > 0)]
    assert [drafted(own, length, first_waits=False) for length in range(5)] == no_wait


@pytest.mark.parametrize(("own", "shares"), [(Own(3, serial=3), [0.0, 0.75]), (Own(3, serial=2), [0.0, 1.0])])
def test_what_drafting_took_is_timed(own: Own, shares: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    copying, seen = WorkerCopying(TABLE, torch.device("cpu"), own, 4, COST), list[Any]()
    monkeypatch.setattr(copying.batch, "_hand_out", lambda lengths, share: seen.append(share))
    for length in (0, 2):
        copied = copying.copied([request([1, 2, 3]), request([4])], 4)
        copying.completed(Draft(torch.ones(2, 3).long(), None), copied, Chosen(copying.ways[0][length], length))
    assert seen == pytest.approx(shares)


@pytest.mark.parametrize(("mode", "stated"), [("greedy", None), ("mixed", (2, 0, 9))])
def test_nothing_is_drafted(mode: Any, stated: tuple[int, ...] | None) -> None:
    tokens, probs, _ = nothing(torch.tensor([4, 5], dtype=torch.int32), 9, mode)
    assert (tokens.shape, tokens.dtype) == ((2, 0), torch.int64)
    assert (None if probs is None else tuple(probs.shape)) == stated


@pytest.mark.parametrize("rows", [1, 2])
def test_copies_alone_are_drafted_where_the_drafter_is_not_worth_its_time(rows: int) -> None:
    cost = COST.model_copy(update={"drafting": ((1, 0.5),)})
    copying = WorkerCopying(CopyTable((0.2, 0.5, 0.99)), CPU, Own(3, serial=3), 8, cost)
    copied = copying.copied([request([1, 2, 3] * 4) for _ in range(rows)], 8, greedy=False)
    chosen = copying.length(8)
    assert chosen == (0, 8)
    draft = copying.completed(nothing(torch.full((rows,), 3), 9, "sampled"), copied, chosen)
    assert draft.tokens.tolist() == [[1, 2, 3, 1, 2, 3, 1, 2]] * rows
    assert draft.probs is not None
    assert draft.probs.argmax(2).tolist() == draft.tokens.tolist() and draft.probs.amax(2).eq(1).all()
