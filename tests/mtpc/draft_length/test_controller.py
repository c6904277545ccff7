"""What a batch copies, when the drafter drafts, and how long the drafts are."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.request import PRIOR_RATE, DraftedRequest
from mtpc.prompt_lookup.table import CopyTable

OWN = DraftBudget(3)
LOOP, NEW = [4, 5, 6, 7] * 6, list(range(40, 60))  # texts that repeat themselves, and that do not


def line(token: float, draft: float = 0.1) -> StepCost:
    """Steps that take so much more for each token after the first."""
    curve = ((1, 1.0), (101, 1.0 + 100 * token))
    return StepCost(plain=curve, verifying=curve, drafting=((1, draft),))


VOCABULARY = 1000
COST = line(0.1)
Kind = TypeVar("Kind", bound=DraftLengths)


def begun(batch: Kind, *texts: list[int], waiting: bool = False) -> Kind:
    """Return the batch with requests that have just emitted the last token of their texts."""
    batch.begin()
    for name, text in enumerate(texts):
        batch.add(name, lambda text=text: text[:-1], text[-1:], waiting)
    return batch


def batch_of(*texts: list[int], cost: StepCost = COST, waiting: bool = False, own: DraftBudget = OWN) -> DraftLengths:
    """One of such requests."""
    return begun(DraftLengths(own, 8, cost, CopyTable(), VOCABULARY), *texts, waiting=waiting)


def test_copies_are_of_each_row() -> None:
    tokens, chances = batch_of(LOOP, NEW).copied(5)
    assert tokens[0].tolist() == [4, 5, 6, 7, 4]
    assert (chances[0] > 0.6).all()
    assert not chances[1].any()


def test_the_drafter_drafts_where_nothing_is_copied_and_where_it_brings_more_than_it_costs() -> None:
    assert batch_of(NEW).plan(8) == 3
    assert batch_of(LOOP).plan(8) == 0
    assert batch_of(LOOP, *[NEW] * 6, cost=line(0.005)).plan(8) == 3
    assert batch_of(NEW, cost=line(0.1, draft=5.0)).plan(8) == 0
    assert batch_of(NEW, cost=line(1.0)).plan(8) == 0


def test_an_autoregressive_part_drafts_as_many_tokens_as_give_a_speedup() -> None:
    """Of its three passes each takes as long; the window of another drafter drafts all of its tokens or none."""
    for draft, pay, pay_at_once in ((0.03, 3, 3), (1.0, 1, 3), (2.1, 0, 0)):
        cost = line(0.02, draft)
        assert batch_of(NEW, cost=cost, own=DraftBudget(3, steps=3)).plan(8) == pay
        assert batch_of(NEW, cost=cost).plan(8) == pay_at_once
    by_one = batch_of(NEW, cost=line(0.02, 1.0), own=DraftBudget(3, steps=3))
    assert by_one.cut([[1]], 8, [False]) == [[1]]


def test_a_draft_that_was_copied_goes_on_being_copied() -> None:
    (copied,) = batch_of(LOOP).cut([[4, 5, 6]], 8, [False])
    assert copied == [4, 5, 6, 7, 4, 5, 6, 7]
    (own,) = batch_of(LOOP).cut([[4, 5, 9]], 8, [False])
    assert own == [4, 5, 9]
    (alone,) = batch_of(LOOP).cut([[]], 8, [False])
    assert alone == copied


def test_a_draft_of_tokens_that_are_seldom_accepted_is_cut() -> None:
    for rate, drafted in ((0.6, [1, 2, 3]), (0.4, [1, 2]), (0.01, [])):
        batch = batch_of(NEW)
        batch.requests[0].rate = rate
        assert batch.cut([[1, 2, 3]], 8, [False]) == [drafted]


def test_a_request_that_waits_gets_no_draft() -> None:
    batch = batch_of(LOOP, waiting=True)
    assert batch.cut([[4, 5, 6]], 8, [False]) == [[]]


@pytest.mark.parametrize("others", [1, 30])
def test_whose_draft_must_not_depend_on_the_others(others: int) -> None:
    drafts = [[1, 2, 3]] * (1 + others)
    (by_itself,) = batch_of(NEW).cut(drafts[:1], 8, [True])
    batch = batch_of(NEW, *[LOOP] * others)
    assert batch.cut(drafts, 8, [True] + [False] * others)[0] == by_itself


def test_the_acceptance_rate_follows_what_becomes_of_drafts() -> None:
    right, wrong, cut = (DraftedRequest(None) for _ in range(3))
    for request, drafted in ((right, [7, 8]), (wrong, [9, 8]), (cut, [])):
        request.drafted(drafted)
        request.observe([7, 8, 1])
    assert right.rate > PRIOR_RATE > wrong.rate
    assert cut.rate == PRIOR_RATE
    wrong.observe([1])
    assert wrong.rate > PRIOR_RATE * 0.9  # it is tried again after a while


def test_steps_with_sampled_requests_have_costs_of_their_own() -> None:
    batch = batch_of(NEW, cost=COST.model_copy(update={"sampled": line(1.0)}))
    assert batch.plan(8) == 3
    batch.begin(greedy=False)
    batch.add(0, lambda: NEW, [], False)
    assert batch.plan(8) == 0
    assert batch.cut([[1, 2, 3]], 8, [False]) == [[]]
    batch.begin()
    batch.add(0, lambda: NEW, [], False)
    assert batch.cut([[1, 2, 3]], 8, [False]) == [[1, 2, 3]]


@pytest.mark.parametrize("copied", [NEW, LOOP])
@pytest.mark.parametrize("alone", [True, False])
def test_how_drawn_drafts_are_cut_leaves_the_law_as_it_is(copied: list[int], alone: bool) -> None:
    """Enumerate all drafts of two tokens, cut and verify them: the first emitted token has the target's distribution.

    All first draft tokens are equally likely.  The first one determines how likely the second one is to be accepted.
    """
    tokens = np.arange(10)
    first, target = np.full(10, 0.1), np.linspace(1, 2, 10) / np.linspace(1, 2, 10).sum()
    second = np.where(tokens[:, None] % 2, 0.1, 0.9 * np.eye(10) + 0.01)
    verifying = ((1, 1.1), (101, 3.1))  # a step with drafts takes a tenth more, and then little for each token
    cost = StepCost(plain=((1, 1.0), (101, 3.0)), verifying=verifying, drafting=((1, 0.1),))
    rest, lengths, law = np.maximum(target - first, 0), set(), np.zeros(10)
    for one, two in np.ndindex(10, 10):
        batch = DraftLengths(DraftBudget(2), 6, cost, CopyTable(), VOCABULARY)
        batch.begin(greedy=False)
        batch.add(0, lambda: copied[:-1], copied[-1:], False)
        (cut,) = batch.cut([[one, two]], 6, [alone])
        lengths.add(len(cut))
        accepted = min(1.0, target[one] / first[one])
        judged = accepted * (tokens == one) + (1 - accepted) * rest / rest.sum()
        law += first[one] * second[one, two] * (judged if cut else target)
    np.testing.assert_allclose(law, target, atol=1e-12)
    assert (len(lengths) > 1) == (copied is LOOP)


@pytest.mark.parametrize("rows", [1, 2])
def test_whether_a_drawn_token_is_judged_is_known_before_it_is_drawn(rows: int) -> None:
    """Whatever it is: what is drawn as it would be copied is gone on from otherwise."""
    rng, judged = np.random.default_rng(0), set[bool]()
    text = [5, 7, 3, 8, 2, *NEW, 5]
    for _ in range(300):
        steps = np.cumsum(rng.uniform(0.0, 0.3, 7)).tolist()
        curve = tuple((tokens, 1.0 + time) for tokens, time in enumerate([0.0, *steps], start=1))
        cost = StepCost(plain=((1, 1.0),), verifying=curve, drafting=((1, float(rng.uniform(0.02, 0.6))),))
        table = CopyTable((float(rng.uniform(0.02, 0.3)), 0.7, 0.8))
        rates, kept = rng.uniform(0.02, 0.6, rows).tolist(), []
        for first in (7, 9):
            batch = DraftLengths(DraftBudget(2, steps=2), 6, cost, table, VOCABULARY)
            batch.begin(greedy=False)
            for row in range(rows):
                batch.add(row, lambda: text[:-1], text[-1:], False)
                batch.requests[row].rate = rates[row]
            own = batch.plan(6)
            if not own:
                break
            drafted = [[first, 3], [9, 9]][:rows]
            cut = batch.cut([draft[:own] for draft in drafted], 6, [False] * rows)
            kept.append([len(draft) > 0 for draft in cut])
            judged.update(kept[-1])
        assert kept[:1] == kept[1:]
    assert judged == ({True, False} if rows > 1 else {True})


def test_a_request_whose_tokens_are_accepted_gets_longer_drafts() -> None:
    """Without prompt lookup; as many tokens of each request as its own acceptance rate makes worth it."""
    batch = DraftLengths(DraftBudget(3, steps=3), 3, line(0.25, 0.0), CopyTable(), VOCABULARY, copies=False)
    for _ in range(60):
        batch.begin()
        batch.add("right", lambda: NEW, [1, 2, 3, 4], False)
        batch.add("wrong", lambda: NEW, [9], False)
        assert batch.plan(3)
        right, wrong = batch.cut([[2, 3, 4], [5, 5, 5]], 3, [False, False])
        batch.requests["right"].drafted([1, 2, 3])
    assert len(right) == 3 > len(wrong)


def test_where_drafting_costs_more_than_it_brings_nothing_is_drafted_until_the_batch_is_small() -> None:
    dear = StepCost(plain=((1, 1.0), (16, 1.2)), verifying=((1, 1.0), (64, 9.0)), drafting=((1, 0.1), (4, 2.0)))
    for requests, own in ((1, 3), (8, 0), (1, 3)):
        batch = DraftLengths(DraftBudget(3), 3, dear, CopyTable(), VOCABULARY, copies=False)
        batch.begin()
        for name in range(requests):
            batch.add(name, lambda: NEW, [1], False)
        assert batch.plan(3) == own


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("others", [0, 3])
def test_what_a_drafter_drafts_as_it_would_be_copied_is_as_likely_as_a_copy(others: int, greedy: bool) -> None:
    """In a batch, and alone with a seed: it is cut no shorter than the same tokens of prompt lookup."""
    cost = StepCost(plain=((1, 1.0), (16, 1.2)), verifying=((1, 1.0), (101, 3.0)), drafting=((1, 0.02),))
    batch = DraftLengths(DraftBudget(3, steps=3), 8, cost, CopyTable(), VOCABULARY)
    batch.begin(greedy)
    for row, text in enumerate([3 * LOOP, *[NEW] * others]):
        batch.add(row, lambda text=text: text[:-1], text[-1:], waiting=False)
        batch.requests[row].rate = 0.5 if text is not NEW else 0.8
    batch.plan(8)
    tokens = [batch.proposals[0].tokens[:3], *[[1, 2, 3]] * others]
    cut = batch.cut(tokens, 8, [not others] * (1 + others))
    assert cut[0] == batch.proposals[0].tokens
    other = batch.cut([[99, 98, 97], *[[1, 2, 3]] * others], 8, [not others] * (1 + others))
    assert len(other[0]) <= 3
