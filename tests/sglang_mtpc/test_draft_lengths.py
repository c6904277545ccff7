"""What a batch of SGLang's requests would copy, whatever order they come in, and when a text is forgotten."""

from __future__ import annotations

import gc
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.mixture import Copied, mixture_weight
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.draft_lengths import WorkerLengths, append_copied, drafter_token_count, empty_drafts
from sglang_mtpc.shape import DraftShape

CPU, TABLE = torch.device("cpu"), CopyTable((0.2, 0.5, 0.8))
COST = StepCost(plain=((1, 1.0),), verifying=((2, 1.1), (40, 2.0)))


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(prompt: list[int]) -> Any:
    parameters = SimpleNamespace(custom_params=None)
    return Request(
        rid=str(prompt), origin_input_ids=array("q", prompt), output_ids=array("q"), sampling_params=parameters
    )


@pytest.mark.parametrize("stated", [True, False])
def test_what_follows_a_draft_is_certain(stated: bool) -> None:
    copied = Copied(torch.tensor([[1, 2, 3, 0], [0, 0, 0, 0]]), torch.tensor([[0.9] * 4, [0.0] * 4]))
    probs = torch.rand(2, 2, 5).softmax(-1) if stated else None
    longer = append_copied(Draft(torch.tensor([[1, 2], [4, 3]]), probs), copied)
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
    assert all(torch.equal(a, b) for a, b in zip(append_copied(draft, copied)[:2], draft[:2], strict=True))


@pytest.mark.parametrize(("mode", "stated"), [("greedy", None), ("mixed", (2, 0, 9))])
def test_nothing_is_drafted(mode: Any, stated: tuple[int, ...] | None) -> None:
    tokens, probs = empty_drafts(torch.tensor([4, 5], dtype=torch.int32), 9, mode)
    assert (tokens.shape, tokens.dtype) == ((2, 0), torch.int64)
    assert (None if probs is None else tuple(probs.shape)) == stated


def worker_lengths(
    own: int = 0, longest: int = 4, cost: StepCost | None = None, copies: bool = True, table: CopyTable = TABLE
) -> WorkerLengths:
    """Return the draft lengths of a worker for chains; own: draft steps of its drafter."""
    return WorkerLengths(
        table, CPU, DraftBudget(own, steps=own), DraftShape(longest, 1, longest), cost, copies, 1 << 16
    )


def test_the_text_goes_on_as_before() -> None:
    made = worker_lengths()
    one, other = request([1, 2, 3, 4, 1, 2]), request([7, 8, 9])
    made.begin([other, one])
    tokens, chances = made.copied(3)
    assert tokens[1].tolist() == [3, 4, 1]
    assert chances[1].tolist() == pytest.approx([mixture_weight(chance) for chance in TABLE.after_match(2, 3)])
    assert chances[0].tolist() == [0.0, 0.0, 0.0]
    one.output_ids.extend([3, 9])
    other.output_ids.extend([8])
    made.begin([one, other])
    tokens, chances = made.copied(2)  # the match is of prompt and output
    assert tokens[1].tolist() == [9, 8]
    assert not chances[0].any()
    assert tokens.dtype == torch.int64
    assert chances.dtype == torch.float32


def test_what_was_said_is_learned_from() -> None:
    """Chances are those of `CopyRequest` after the same text in the same parts."""
    made, one, plain = worker_lengths(), request([1, 2, 1]), CopyRequest(TABLE, [1, 2, 1], 1 << 16)
    for emitted in ([2, 1, 2], [1], [5], [1, 2, 7], []):
        expected = plain.propose(4)
        made.begin([one])
        tokens, chances = made.copied(4)
        assert tokens[0].tolist() == expected.tokens
        assert torch.equal(chances[0], torch.tensor([mixture_weight(chance) for chance in expected.chances]))
        one.output_ids.extend(emitted)
        plain.append(emitted)


def test_a_request_that_is_retracted_without_its_output_begins_again() -> None:
    """SGLang drops the output of a prompt of embeddings."""
    made, one = worker_lengths(), request([1, 2, 3])
    one.output_ids.extend([1, 2, 9])
    made.begin([one])
    del one.output_ids[:]
    made.begin([one])
    one.output_ids.extend([1, 2])
    made.begin([one])
    assert made.controller.requests[one].copy.text == [1, 2, 3, 1, 2]


def test_a_request_that_is_gone_is_forgotten() -> None:
    made, one = worker_lengths(), request([1, 1])
    made.begin([one])
    assert len(made.controller.requests) == 1
    del one
    made.controller.begin()
    gc.collect()
    assert not made.controller.requests


def test_all_drafts_are_as_long_as_is_worth_it() -> None:
    """Long where every text repeats itself, none where no text does, and so for the whole batch."""
    made = worker_lengths(0, 8, COST, table=CopyTable((0.2, 0.5, 0.99)))
    repeats, others = request([1, 2, 3, 4, 5] * 4), [request([6, 7, 8]), request([8, 7])]
    made.begin([repeats, request([1, 2] * 9)])
    assert made.choose() == (0, 8)
    made.begin(others)
    assert made.choose() == (0, 0)
    made.begin([repeats, others[0]])
    assert 0 < made.choose().length <= 8


@pytest.mark.parametrize("copies", [True, False])
def test_a_drafter_that_is_wrong_drafts_no_more_until_it_may_be_right_again(copies: bool) -> None:
    made, length = worker_lengths(3, 3, COST, copies, CopyTable((0.01,))), []
    requests = [request([1, 2, 3]), request([4, 5, 6])]
    for step in range(120):
        made.begin(requests)
        copied, chosen = made.copied(3), made.choose()
        length.append(chosen.drafter_tokens)
        made.extend_with_copied(Draft(torch.full((2, chosen.drafter_tokens), 500), None), copied, chosen)
        for number, one in enumerate(requests):
            one.output_ids.append(10 + 100 * number + step)
    assert length[0] == 3
    assert 0 < length.count(0) < 120


def test_without_a_cost_all_drafts_have_one_length() -> None:
    made = worker_lengths()
    made.begin([request([6, 7, 8])])
    copied, chosen = made.copied(4), made.choose()
    assert chosen == (0, 4)
    draft = Draft(torch.tensor([[1, 2, 3]]), None)
    assert made.extend_with_copied(draft, copied, chosen).tokens.tolist() == [[1, 2, 3, copied.tokens[0, 3]]]


def test_a_tree_is_whole_or_not_there() -> None:
    for token, expected in ((0.01, (3, 8)), (0.5, (0, 0))):
        curve = ((1, 1.0), (101, 1.0 + 100 * token))
        cost = StepCost(plain=curve, verifying=curve, drafting=((1, 0.1),))
        made = WorkerLengths(TABLE, CPU, DraftBudget(3), DraftShape(3, 2, 8), cost, False, 999)
        made.begin([request([1, 2, 3])])
        assert made.choose() == expected


@pytest.mark.parametrize(
    ("budget", "ways"),
    [
        (DraftBudget(3, steps=3), [0, 1, 2, 3, 3]),
        (DraftBudget(4), [0, 1, 2, 3, 4]),
        (DraftBudget(3, steps=2), [0, 3, 3, 3, 3]),
        (DraftBudget(0), [0] * 5),
    ],
)
def test_what_is_drafted_for_a_length(budget: DraftBudget, ways: list[int]) -> None:
    assert [drafter_token_count(budget, length) for length in range(5)] == ways


@pytest.mark.parametrize("rows", [1, 2])
def test_copies_alone_are_drafted_where_the_drafter_is_not_worth_its_time(rows: int) -> None:
    cost = COST.model_copy(update={"drafting": ((1, 0.5),)})
    made = worker_lengths(3, 8, cost, table=CopyTable((0.2, 0.5, 0.99)))
    made.begin([request([1, 2, 3] * 4) for _ in range(rows)], greedy=False)
    copied, chosen = made.copied(8), made.choose()
    assert chosen == (0, 8)
    draft = made.extend_with_copied(empty_drafts(torch.full((rows,), 3), 9, "sampled"), copied, chosen)
    assert draft.tokens.tolist() == [[1, 2, 3, 1, 2, 3, 1, 2]] * rows
    assert draft.probs is not None
    assert draft.probs.argmax(2).tolist() == draft.tokens.tolist() and draft.probs.amax(2).eq(1).all()


def test_steps_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[Any] = []
    monkeypatch.setattr("sglang_mtpc.served.announce_cost", announced.append)
    monkeypatch.setattr("sglang_mtpc.draft_lengths.seconds_of_first_rank", lambda seconds: 1.0)
    made, calls = worker_lengths(3, 3, COST), list[int]()
    made.time_steps(calls.append, lambda requests: calls.append(requests), 4)
    assert not calls
    made.times_steps = True
    made.time_steps(calls.append, lambda requests: calls.append(requests), 4)
    assert made.controller.cost.drafting == ((1, 1.0), (4, 1.0))
    assert announced == [made.controller.cost] and calls
