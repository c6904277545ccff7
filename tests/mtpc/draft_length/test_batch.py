"""What a batch copies, when the drafter drafts, and how long the drafts are."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from mtpc.draft_length.batch import BatchCopying
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.measured import DRAFTED, FIRST, TRIAL, StepTimes
from mtpc.draft_length.request import Request
from mtpc.prompt_lookup.table import CopyTable

OWN, TYPICAL = Own(3), CopyTable().typical[0]
LOOP, NEW = [4, 5, 6, 7] * 6, list(range(40, 60))  # texts that repeat themselves, and that do not


def line(token: float, draft: float = 0.1) -> StepCost:
    """Steps that take so much more for each token after the first."""
    curve = ((1, 1.0), (101, 1.0 + 100 * token))
    return StepCost(plain=curve, verifying=curve, drafting=((1, draft),))


COST = line(0.1)
Kind = TypeVar("Kind", bound=BatchCopying)


def begun(batch: Kind, *texts: list[int], waiting: bool = False) -> Kind:
    """The batch with requests that have just said the last token of their texts."""
    batch.begin()
    for name, text in enumerate(texts):
        batch.add(name, lambda text=text: text[:-1], text[-1:], waiting)
    return batch


def batch_of(*texts: list[int], cost: StepCost = COST, waiting: bool = False, own: Own = OWN) -> BatchCopying:
    """One of such requests."""
    return begun(BatchCopying(own, 8, cost, CopyTable()), *texts, waiting=waiting)


def test_copies_are_of_each_row() -> None:
    tokens, chances = batch_of(LOOP, NEW).copied(5)
    assert tokens[0].tolist() == [4, 5, 6, 7, 4]
    assert (chances[0] > 0.6).all()
    assert not chances[1].any()


def test_the_drafter_drafts_where_nothing_is_copied_and_where_it_brings_more_than_it_costs() -> None:
    assert batch_of(NEW).own_that_pay(8) == 3
    assert batch_of(LOOP).own_that_pay(8) == 0
    assert batch_of(LOOP, *[NEW] * 6, cost=line(0.005)).own_that_pay(8) == 3
    assert batch_of(NEW, cost=line(0.1, draft=5.0)).own_that_pay(8) == 0
    assert batch_of(NEW, cost=line(1.0)).own_that_pay(8) == 0


def test_a_serial_part_drafts_as_many_tokens_as_pay() -> None:
    """Of its three passes each takes as long; the window of another drafter drafts all of its tokens or none."""
    for draft, pay, pay_at_once in ((0.03, 3, 3), (1.0, 2, 3), (1.6, 0, 0)):
        cost = line(0.02, draft)
        assert batch_of(NEW, cost=cost, own=Own(3, serial=3)).own_that_pay(8) == pay
        assert batch_of(NEW, cost=cost).own_that_pay(8) == pay_at_once
    by_one = batch_of(NEW, cost=line(0.02, 1.0), own=Own(3, serial=3))
    sure = [[0.9]]
    assert by_one.lengths([[1]], sure, 8, [False]) == [[1]]


def test_a_draft_that_was_copied_goes_on_being_copied() -> None:
    sure = [[0.9, 0.9, 0.9]]
    (copied,) = batch_of(LOOP).lengths([[4, 5, 6]], sure, 8, [False])
    assert copied == [4, 5, 6, 7, 4, 5, 6, 7]
    (own,) = batch_of(LOOP).lengths([[4, 5, 9]], sure, 8, [False])
    assert own == [4, 5, 9]
    (alone,) = batch_of(LOOP).lengths([[]], [], 8, [False])
    assert alone == copied


def test_an_unlikely_draft_is_cut() -> None:
    (cut,) = batch_of(NEW).lengths([[1, 2, 3]], [[0.9, 0.3, 0.3]], 8, [False])
    assert cut == [1, 2]  # the second may still bring 0.27 of a token in a tenth of a step
    (none,) = batch_of(NEW).lengths([[1, 2, 3]], [[0.01, 0.9, 0.9]], 8, [False])
    assert none == []


def test_a_request_that_waits_gets_no_draft() -> None:
    batch = batch_of(LOOP, waiting=True)
    assert batch.lengths([[4, 5, 6]], [[0.9] * 3], 8, [False]) == [[]]


@pytest.mark.parametrize("others", [1, 30])
def test_whose_draft_must_not_depend_on_the_others(others: int) -> None:
    sure = [[0.5] * 3] * (1 + others)
    drafts = [[1, 2, 3]] * (1 + others)
    (by_itself,) = batch_of(NEW).lengths(drafts[:1], sure[:1], 8, [True])
    batch = batch_of(NEW, *[LOOP] * others)
    assert batch.lengths(drafts, sure, 8, [True] + [False] * others)[0] == by_itself


def test_what_becomes_of_drafts_corrects_how_sure_they_are() -> None:
    right, wrong, cut = (Request(CopyTable(), NEW) for _ in range(3))
    for request, drafted in ((right, [7, 8]), (wrong, [9, 8]), (cut, [])):
        request.drafted(drafted, [0.5] * len(drafted))
        request.said([7, 8, 1])
    assert right.sure.value > 0 > wrong.sure.value
    assert right.typical > TYPICAL > wrong.typical
    assert cut.sure.value == 0 and cut.typical == TYPICAL
    wrong.said([1])
    assert wrong.sure.value < 0 and wrong.typical > TYPICAL * 0.9  # it is tried again after a while


def test_steps_with_sampled_requests_have_costs_of_their_own() -> None:
    batch = batch_of(NEW, cost=COST.model_copy(update={"sampled": line(1.0)}))
    assert batch.own_that_pay(8) == 3
    batch.begin(greedy=False)
    batch.add(0, lambda: NEW, [], False)
    assert batch.own_that_pay(8) == 0
    sure = [[0.9] * 3]
    assert batch.lengths([[1, 2, 3]], sure, 8, [False]) == [[]]
    batch.begin()
    batch.add(0, lambda: NEW, [], False)
    assert batch.lengths([[1, 2, 3]], sure, 8, [False]) == [[1, 2, 3]]


def test_the_table_says_how_sure_the_drafter_is_at_first() -> None:
    sure = [[0.5, 0.5]]
    for own, drafted in (((0.0,), []), ((2.0,), [1, 2]), ((2.0, 0.0), [1])):
        batch = BatchCopying(Own(2), 8, line(0.6, draft=0.0), CopyTable(own=own))
        batch.begin()
        batch.add(0, lambda: NEW, [], False)
        assert batch.lengths([[1, 2]], sure, 8, [False]) == [drafted]


@pytest.mark.parametrize("copied", [NEW, LOOP])
@pytest.mark.parametrize("alone", [True, False])
def test_how_drawn_drafts_are_cut_leaves_the_law_as_it_is(copied: list[int], alone: bool) -> None:
    """Every draft of two tokens, drawn from what is stated, cut, and verified: the first token said is the target's.

    All first tokens are as likely to be drawn; which it is tells how likely the second one is to be right.
    """
    tokens = np.arange(10)
    first, target = np.full(10, 0.1), np.linspace(1, 2, 10) / np.linspace(1, 2, 10).sum()
    second = np.where(tokens[:, None] % 2, 0.1, 0.9 * np.eye(10) + 0.01)
    verifying = ((1, 1.1), (101, 3.1))  # a step with drafts takes a tenth more, and then little for each token
    cost = StepCost(plain=((1, 1.0), (101, 3.0)), verifying=verifying, drafting=((1, 0.1),))
    rest, lengths, law = np.maximum(target - first, 0), set(), np.zeros(10)
    for one, two in np.ndindex(10, 10):
        batch = BatchCopying(Own(2), 6, cost, CopyTable(slope=(1.0, 1.0)))
        batch.begin(greedy=False)
        batch.add(0, lambda: copied[:-1], copied[-1:], False)
        sure = [[float(first.max()), float(second[one].max())]]
        (cut,) = batch.lengths([[one, two]], sure, 6, [alone])
        lengths.add(len(cut))
        accepted = min(1.0, target[one] / first[one])
        judged = accepted * (tokens == one) + (1 - accepted) * rest / rest.sum()
        law += first[one] * second[one, two] * (judged if cut else target)
    np.testing.assert_allclose(law, target, atol=1e-12)
    assert len(lengths) > (copied is NEW)


@pytest.mark.parametrize("copied", [NEW, [5, 7, 3, *NEW, 5]])
def test_drafts_that_go_on_by_what_was_drawn_leave_the_law_as_it_is(copied: list[int]) -> None:
    """As above, of two tokens said: whether a second token is drafted depends on the first, on nothing drawn later."""
    tokens, size = np.arange(10), 10
    first, target = np.full(size, 0.1), np.linspace(1, 2, size) / np.linspace(1, 2, size).sum()
    after = np.stack([np.roll(target, one) for one in tokens])  # of the target, after each first token
    second = np.where(tokens[:, None] % 2, 0.1, 0.9 * np.eye(size) + 0.01)
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 6.0)), drafting=((1, 0.4),))
    passes, law = set(), np.zeros((size, size))

    def judged(token: int, draft: np.ndarray, wanted: np.ndarray) -> tuple[float, np.ndarray]:
        """How likely a drafted token is accepted, and what is said where it is not, with that chance."""
        rest, accepted = np.maximum(wanted - draft, 0), min(1.0, wanted[token] / draft[token])
        return accepted, (1 - accepted) * rest / rest.sum() if rest.any() else np.zeros(size)

    for one in tokens:
        table = CopyTable((0.05, 0.9), slope=(1.0, 1.0))
        batch = BatchCopying(Own(1, serial=1, further=3), 6, cost, table)
        batch.begin(greedy=False)
        batch.add(0, lambda: copied[:-1], copied[-1:], False)
        assert batch.own_that_pay(6)
        goes_on = batch.goes_on([one], [0.1 if one % 2 else 0.9])
        passes.add(goes_on)
        for two in tokens if goes_on else [0]:
            drafted = [one, two] if goes_on else [one]
            sure = [[0.1 if one % 2 else 0.9, float(second[one].max())][: len(drafted)]]
            (cut,) = batch.lengths([list(drafted)], sure, 6, [False])
            likely = first[one] * (second[one, two] if goes_on else 1.0)
            if not cut:
                law += likely * target[:, None] * after
                continue
            accepted, otherwise = judged(one, first, target)
            law += likely * otherwise[:, None] * after
            if len(cut) == 1:
                law[one] += likely * accepted * after[one]
            else:
                draft = second[one] if goes_on else np.eye(size)[cut[1]]  # what is copied is certain
                again, otherwise = judged(cut[1], draft, after[one])
                law[one] += likely * accepted * (again * np.eye(size)[cut[1]] + otherwise)
    np.testing.assert_allclose(law, target[:, None] * after, atol=1e-12)
    assert passes == {True, False}


@pytest.mark.parametrize("rows", [1, 2])
def test_whether_a_drawn_token_is_judged_is_known_before_it_is_drawn(rows: int) -> None:
    """Whatever it is, and whatever passes follow it: what is drawn as it would be copied is gone on from otherwise."""
    rng, passes, judged = np.random.default_rng(0), set[int](), set[bool]()
    text = [5, 7, 3, 8, 2, *NEW, 5]
    for _ in range(300):
        steps = np.cumsum(rng.uniform(0.0, 0.3, 7)).tolist()
        curve = tuple((tokens, 1.0 + time) for tokens, time in enumerate([0.0, *steps], start=1))
        cost = StepCost(plain=((1, 1.0),), verifying=curve, drafting=((1, float(rng.uniform(0.02, 0.6))),))
        table = CopyTable(
            (float(rng.uniform(0.02, 0.3)), 0.7, 0.8), slope=(1.0, 1.0), typical=(0.6, rng.uniform(0.3, 0.8))
        )
        peaks = rng.uniform(0.02, 0.6, (6, rows))
        kept = []
        for first in (7, 9):
            batch = BatchCopying(Own(2, serial=2, further=4), 6, cost, table)
            batch.begin(greedy=False)
            for row in range(rows):
                batch.add(row, lambda: text[:-1], text[-1:], False)
            if not batch.own_that_pay(6):
                break
            drafted, done = [[first, 3, 8, 2, 40, 41], [9] * 6][:rows], 1
            while batch.goes_on([draft[done - 1] for draft in drafted], peaks[done - 1].tolist()):
                done += 1
            passes.add(done)
            sure = peaks[:done].T.tolist()
            cut = batch.lengths([draft[:done] for draft in drafted], sure, 6, [False] * rows)
            kept.append([len(draft) > 0 for draft in cut])
            judged.update(kept[-1])
        assert kept[:1] == kept[1:]
    assert len(passes) > 1 and judged == {True, False}


def test_places_are_as_sure_as_the_table_says_of_each() -> None:
    """The second token of this drafter is never right."""
    for own, passes in (((3.0, -3.0), 1), ((3.0, 3.0), 4)):
        batch = BatchCopying(Own(2, serial=2, further=2), 6, line(0.1, 0.05), CopyTable(own=own))
        batch.begin()
        batch.add(0, lambda: NEW[:-1], NEW[-1:], False)
        assert batch.own_that_pay(6)
        made = 1
        while batch.goes_on([70 + made], [0.5]):
            made += 1
        assert made == passes + (own[1] < 0)  # what is known to be wrong is seen after the pass that drafts it


def test_a_trial_makes_the_passes_that_were_planned() -> None:
    """Whatever they draft, and also beside a request that waits."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, 0.35),))
    batch, tried = BatchCopying(Own(2, serial=2, further=4), 6, cost, CopyTable((0.7,)), times=StepTimes(cost)), []
    for step in range(60):
        batch.begin()
        batch.add("one", lambda: [1, 2], [100 + step], False)
        batch.add("waits", lambda: [1, 2], [], True)
        planned, done = batch.own_that_pay(6), 0
        while planned and batch.goes_on([9, 9], [0.01, 0.01]):
            done += 1
        if planned:
            tried.append((planned, done + 1))
        made = done + (planned > 0)
        batch.lengths([[9] * made] * 2, [[0.01] * made] * 2, 6, [False, False])
    assert tried and all(planned == made for planned, made in tried)


def test_a_draft_goes_on_while_that_pays_and_no_further_than_it_may() -> None:
    for sure, passes in ((0.97, 6), (0.02, 1)):
        batch, made = batch_of(NEW, cost=line(0.001, 0.05), own=Own(3, serial=3, further=5)), 1
        assert batch.own_that_pay(6) == 3
        while batch.goes_on([70 + made], [sure]):
            made += 1
        assert made == passes
    waits = batch_of(NEW, waiting=True, own=Own(3, serial=3))
    assert not waits.own_that_pay(6)


class Clock:
    """Steps that say one token take a second, and a draft of so many tokens so much more."""

    def __init__(self, dear: float) -> None:
        self.now, self.dear = 0.0, dear

    def __call__(self) -> float:
        return self.now

    def pass_step(self, drafts: int) -> None:
        self.now += 1.0 + self.dear * drafts


def drafted_in(steps: int, dear: float, alone: bool = False) -> list[int]:
    """Lengths of drafts of two texts that repeat themselves; dear: what a token takes of a step, 0.1 by the table."""
    clock, texts, lengths = Clock(dear), {name: [4, 5, 6, 7] * 9 * steps for name in "ab"}, []
    batch = BatchCopying(Own(0), 8, COST, CopyTable((0.8,)), times=StepTimes(COST, clock=clock))
    said, drafts = dict.fromkeys(texts, 8), [[1], [1]]  # all drafts are right
    for _ in range(steps):
        batch.begin()
        for (name, text), draft in zip(texts.items(), drafts, strict=True):
            start, said[name] = said[name], said[name] + 1 + len(draft)
            batch.add(name, lambda text=text: text[:8], text[start : said[name]], False)
        drafts = batch.lengths([[], []], [], 8, [alone, alone])
        lengths.append(sum(map(len, drafts)))
        clock.pass_step(lengths[-1])
    return lengths


def test_drafts_that_take_longer_than_the_table_says_become_shorter() -> None:
    right, wrong, alone = drafted_in(600, 0.1), drafted_in(600, 0.8), drafted_in(600, 0.8, alone=True)
    assert right[0] == wrong[0] == 8 and alone[0] == 12
    assert right[-50:] == [16] * 50
    assert sum(wrong[-50:]) < 0.2 * sum(right[-50:])
    assert alone == drafted_in(600, 0.1, alone=True)  # what a request with a seed is drafted is none of the clock's


def test_a_batch_that_always_drafts_is_seen_without_drafts_now_and_then() -> None:
    undrafted = [step for step, length in enumerate(drafted_in(1200, 0.1)) if not length]
    assert undrafted[0] <= FIRST + 2
    assert {DRAFTED, DRAFTED + 1, DRAFTED + 2}.issuperset(np.diff(undrafted[-3:]).tolist())
    assert not drafted_in(600, 0.1, alone=True).count(0)


def test_a_trial_of_a_drafter_that_is_always_right_says_nothing_against_it() -> None:
    """Its steps follow each other, so what became of one is learned in the next."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, 0.6),))
    batch = BatchCopying(Own(2, serial=2), 6, cost, CopyTable((0.7,)), times=StepTimes(cost, clock=Clock(0.0)))
    right, drafted, tried, rested = [50, 51], False, 0, 0
    for step in range(400):
        answers = dict.fromkeys(("one", "other"), [*right, 100 + step] if drafted else [100 + step])
        drafted = False
        if batch.rests(answers):
            rested += 1
            continue
        batch.begin()
        for name, tokens in answers.items():
            batch.add(name, lambda: [1, 2], tokens, False)
        own = batch.own_that_pay(6)
        drafts = batch.lengths([right[:own]] * 2, [[0.6] * own] * 2, 6, [False, False])
        drafted = any(drafts)
        tried += drafted
    assert tried and rested
    assert all(request.sure.value >= 0 for request in batch.requests.values())


@pytest.mark.parametrize("dear", [0.6, 8.0])
def test_a_drafter_that_seems_to_be_worth_little_is_tried_and_all_of_its_drafts_verified(dear: float) -> None:
    """One whose drafts cannot be worth it is not; and what is tried does not end a rest."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, dear),))
    batch = BatchCopying(Own(2, serial=2), 6, cost, CopyTable((0.7,)), times=StepTimes(cost, clock=Clock(0.0)))
    given = []
    for step in range(40):
        batch.begin()
        for name in ("one", "other"):
            batch.add(name, lambda: [1, 2], [100 + step], False)
        own = batch.own_that_pay(6)
        drafts = batch.lengths([[0] * own] * 2, [[0.01] * own] * 2, 6, [False, False])
        given.append(list(map(len, drafts)))
    tried = [lengths for lengths in given if any(lengths)]
    assert 0 < len(tried) <= TRIAL if dear < 1.0 else not tried  # what was tried in vain looks worse at once
    assert all(one == other for one, other in tried)
