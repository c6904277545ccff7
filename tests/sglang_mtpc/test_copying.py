"""What a batch of SGLang's requests would copy, whatever order they come in, and when a text is forgotten."""

from __future__ import annotations

import gc
from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mtpc.copying.mixture import Copied, doubted
from mtpc.copying.request import CopyRequest
from mtpc.copying.table import CopyTable
from mtpc.draft import Draft
from mtpc.own import Own
from mtpc.step_cost import StepCost
from sglang_mtpc.copying import Chosen, WorkerCopying, drafted, lengthened, nothing

CPU, TABLE = torch.device("cpu"), CopyTable((0.2, 0.5, 0.8))


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(prompt: list[int]) -> Any:
    return Request(origin_input_ids=array("q", prompt), output_ids=array("q"))


def test_the_text_goes_on_as_before() -> None:
    copying = WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4)
    one, other = request([1, 2, 3, 4, 1, 2]), request([7, 8, 9])
    tokens, chances = copying.copied([other, one], 3)
    assert tokens[1].tolist() == [3, 4, 1]
    assert chances[1].tolist() == pytest.approx(doubted(np.array(TABLE.along(2, 3))))
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
        assert np.array_equal(chances[0].numpy(), doubted(np.array(expected.chances, np.float32)))
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


def test_all_drafts_are_as_long_as_pays() -> None:
    """Long where every text repeats itself, none where no text does, and so for the whole batch."""
    copying = WorkerCopying(CopyTable((0.2, 0.5, 0.99)), torch.device("cpu"), own=Own(0), longest=8, cost=COST)
    repeats, other = request([1, 2, 3, 4, 5] * 4), request([6, 7, 8])
    copying.copied([repeats], 8)
    assert copying.length(8) == (0, 8)
    copying.copied([other], 8)
    assert copying.length(8) == (0, 0)
    copying.copied([repeats, other], 8)
    assert 0 < copying.length(8).length <= 8
    draft = Draft(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.rand(2, 3, 9))
    assert draft.probs is not None
    cut = copying.cut(draft, Chosen(0, 2))
    assert (cut.tokens.tolist(), cut.probs.shape) == ([[1, 2], [4, 5]], (2, 2, 9))  # type: ignore[union-attr]


@pytest.mark.parametrize("fixed", [True, False])
def test_what_the_first_rank_has_timed_is_believed(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the table is to stand as it is."""
    monkeypatch.setattr("sglang_mtpc.copying.told_by_first_rank", lambda _: (5.0, 5.0))
    table, cost = CopyTable((0.2, 0.5, 0.99)), COST.model_copy(update={"fixed": fixed})
    copying, repeats = WorkerCopying(table, torch.device("cpu"), Own(0), 8, cost), request([1, 2, 3, 4, 5] * 4)
    copying.copied([repeats], 8)
    expected = cost if fixed else cost.corrected(5.0, 5.0)
    assert copying.batch.prices.cost.model_dump() == expected.model_dump()
    assert copying.length(8) == (0, 8)
    copying.cut(Draft(torch.tensor([[1] * 8]), None), Chosen(0, 8))
    assert copying.batch.times is None or copying.batch.times.handed == {hash(repeats): 8}


def test_a_drafter_that_is_wrong_drafts_no_more_until_it_may_be_right_again() -> None:
    copying, one = WorkerCopying(CopyTable((0.01,)), torch.device("cpu"), Own(3), 3, COST), request([1, 2, 3])
    lengths = []
    for step in range(60):
        copying.copied([one], 3)
        chosen = copying.length(3)
        copying.cut(Draft(torch.full((1, 3), 500), None), chosen)
        lengths.append(chosen.length)
        one.output_ids.append(10 + step)
    assert lengths[0] == 3
    assert 0 < lengths.count(0) < 60


def test_without_a_cost_all_drafts_have_one_length() -> None:
    copying, one = WorkerCopying(TABLE, torch.device("cpu"), own=Own(0), longest=4), request([6, 7, 8])
    copying.copied([one], 4)
    assert copying.length(4) == (0, 4)
    draft = Draft(torch.tensor([[1, 2, 3]]), None)
    assert copying.cut(draft, Chosen(0, 2)) is draft


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
        copying.copied([request([1, 2, 3])], 4)
        copying.cut(Draft(torch.tensor([[1, 2, 3]]), None), Chosen(copying.ways[0][length], length))
    assert seen == pytest.approx(shares)


@pytest.mark.parametrize(("mode", "stated"), [("greedy", None), ("mixed", (2, 0, 9))])
def test_nothing_is_drafted(mode: Any, stated: tuple[int, ...] | None) -> None:
    tokens, probs, _ = nothing(torch.tensor([4, 5], dtype=torch.int32), 9, mode)
    assert (tokens.shape, tokens.dtype) == ((2, 0), torch.int64)
    assert (None if probs is None else tuple(probs.shape)) == stated


def test_copies_alone_are_drafted_where_the_drafter_is_not_worth_its_time() -> None:
    cost = COST.model_copy(update={"drafting": ((1, 0.5),)})
    copying, repeats = (
        WorkerCopying(CopyTable((0.2, 0.5, 0.99)), CPU, Own(3, serial=3), 8, cost),
        request([1, 2, 3] * 4),
    )
    copied = copying.copied([repeats], 8)
    chosen = copying.length(8)
    assert chosen == (0, 8)
    draft = copying.cut(lengthened(nothing(torch.tensor([3]), 9, "sampled"), copied), chosen)
    assert draft.tokens.tolist() == [[1, 2, 3, 1, 2, 3, 1, 2]]
    assert draft.probs is not None
    assert draft.probs.argmax(2).tolist() == draft.tokens.tolist() and draft.probs.amax(2).eq(1).all()
