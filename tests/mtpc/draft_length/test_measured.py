"""What steps take is learned from the clock: here one that a made-up machine advances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mtpc.draft_length.budget import Own
from mtpc.draft_length.choice import Prices
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.measured import EVERY, FIRST, FIRST_TRIAL, SELDOM, TRIAL, WARM_UP, StepTimes

TABLE = StepCost(plain=((1, 1.0), (16, 2.5)), verifying=((2, 1.1), (17, 2.6)), drafting=((1, 0.2), (16, 0.8)))
OWN = Own(3, serial=3)
LOOK = 0.0004  # seconds


class Machine:
    """Steps of so many seconds a unit, in which drafts and drafting are dearer than the table says."""

    def __init__(self, verifying: float, drafting: float, unit: float = 0.02, noise: float = 0.0) -> None:
        self.now, self.unit, self.noise = 0.0, unit, noise
        self.cost = TABLE.corrected(verifying, drafting)
        self.times = StepTimes(TABLE, clock=lambda: self.now)
        self.rng = np.random.default_rng(0)

    def spend(self, units: float) -> None:
        self.now += self.unit * units * self.rng.lognormal(sigma=self.noise)

    def step(self, rows: int, handed: int, drafts: int, own: int) -> None:
        """The target verifies so many drafts of all, then as many others are drafted for each."""
        self.spend(self.cost.step(rows, handed * rows))
        self.times.begin()
        self.now += LOOK
        if own:
            self.spend(self.cost.draft(rows) * OWN.share(own))
        prices = Prices(TABLE, rows, 8 * rows)
        self.times.end(prices, True, range(rows), dict.fromkeys(range(rows), drafts), OWN.share(own))

    def run(self, steps: int, rows: int, drafts_of: Callable[[int], int]) -> StepCost:
        """Which drafts a step gets; returned is the cost as it is told at the end."""
        handed = 0
        for step in range(steps):
            drafts = drafts_of(step)
            self.step(rows, handed, drafts, min(drafts, OWN.count))
            handed = drafts
        for _ in range(EVERY):  # told anew in one of these looks
            told = self.times.cost(rows, True)
        return told


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize(("verifying", "drafting"), [(1.0, 1.0), (2.5, 0.5), (0.4, 3.0)])
def test_a_table_that_is_wrong_is_corrected(verifying: float, drafting: float, rows: int) -> None:
    machine = Machine(verifying, drafting, noise=0.03)
    told = machine.run(600, rows, lambda step: step % 6)
    look = LOOK / machine.unit if rows > 1 else 0.0  # what any drafts of many requests add besides
    for drafts in (1, 3, 6):
        added, expected = (each.step(rows, drafts * rows) - each.step(rows, 0) for each in (told, machine.cost))
        assert added == pytest.approx(expected + look, rel=0.12)
    assert told.draft(rows) == pytest.approx(machine.cost.draft(rows), rel=0.12)
    assert told.step(rows, 0) == TABLE.step(rows, 0)


def test_the_table_is_believed_where_nothing_is_known() -> None:
    assert Machine(3.0, 3.0).run(0, 4, lambda _: 0).model_dump() == TABLE.corrected(1.0, 1.0).model_dump()
    never = Machine(3.0, 3.0).run(400, 4, lambda _: 0)
    assert never.model_dump() == TABLE.corrected(1.0, 1.0, round(LOOK / 0.02, 3)).model_dump()


def test_what_was_seen_long_ago_is_forgotten() -> None:
    machine = Machine(3.0, 1.0)
    seen = machine.run(300, 4, lambda step: step % 6)
    later = machine.run(6000, 4, lambda _: 0)
    assert seen.step(4, 12) > 1.3 * TABLE.step(4, 12)
    assert later.step(4, 12) == pytest.approx(TABLE.step(4, 12), rel=0.02)


def test_sizes_and_temperatures_are_apart() -> None:
    machine = Machine(3.0, 1.0)
    machine.run(300, 4, lambda step: step % 6)
    for rows, greedy in ((1, True), (16, True), (4, False)):
        assert machine.times.cost(rows, greedy).step(rows, 12) == TABLE.step(rows, 12)


def test_an_interruption_is_no_step() -> None:
    machine = Machine(1.0, 1.0)
    machine.run(300, 4, lambda step: step % 6)
    machine.now += 60.0
    machine.step(4, 5, 0, 0)
    told = machine.run(1, 4, lambda _: 0)
    assert told.step(4, 12) == pytest.approx(TABLE.step(4, 12), rel=0.1)


def test_steps_in_which_prompts_are_read_do_not_count() -> None:
    machine = Machine(1.0, 1.0)
    for step in range(200):
        machine.spend(50.0)
        machine.times.begin()
        drafts = {0: 3, 1000 + step: 0}  # another request is new in every step
        machine.times.end(Prices(TABLE, 2, 16), True, list(drafts), drafts, 0.0)
    assert not machine.times.sizes


def test_of_steps_that_nobody_looks_at_the_first_is_timed() -> None:
    machine, prices, drafts = Machine(1.0, 1.0), Prices(TABLE, 2, 16), dict.fromkeys(range(2), 0)
    for _ in range(200):
        machine.step(2, 0, 0, 0)
        for _ in range(5):
            machine.spend(TABLE.step(2, 0))
            machine.times.skip(prices, True, range(2), drafts)
            machine.now += 60.0  # whatever the others take
    (size,) = machine.times.sizes.values()
    size.learn()
    assert size.steps == 200
    assert size.look == pytest.approx(LOOK)
    assert size.fit()[0] == pytest.approx(machine.unit, rel=0.01)


def test_a_size_that_always_drafts_is_seen_without_drafts_now_and_then() -> None:
    machine = Machine(1.0, 1.0)
    assert not machine.times.undrafted(2, True)
    machine.run(FIRST, 2, lambda _: 3)
    assert not machine.times.undrafted(2, True)
    machine.run(2, 2, lambda _: 3)
    assert machine.times.undrafted(2, True)
    assert not machine.times.undrafted(8, True)
    machine.step(2, 3, 0, 0)
    assert not machine.times.undrafted(2, True)  # that step is under way
    machine.step(2, 0, 3, 3)
    assert not machine.times.undrafted(2, True)


def test_a_drafter_that_never_drafts_is_tried_more_and_more_seldom() -> None:
    machine, tried = Machine(1.0, 1.0), []
    for look in range(4 * SELDOM):
        tries = machine.times.tries(4, True)
        machine.step(4, 0, 3 * tries, 3 * tries)
        tried += [look] * tries
    begins = [look for look in tried if look - 1 not in tried]
    assert len(tried) == TRIAL * len(begins)
    gaps = np.diff([-1, *begins]).tolist()
    assert gaps[0] == FIRST_TRIAL
    assert gaps[1:4] == [2**number * FIRST_TRIAL + TRIAL - 1 for number in (1, 2, 3)]
    assert max(gaps) == SELDOM + TRIAL - 1
    assert not machine.times.tries(64, True)


def test_a_drafter_that_drafts_is_not_tried() -> None:
    machine = Machine(1.0, 1.0)
    for _ in range(100):
        assert not machine.times.tries(4, True)
        machine.step(4, 3, 3, 3)


def test_ranks_tell_what_the_first_one_found() -> None:
    """Asked in the same looks, whatever each has measured."""
    asked: list[tuple[float, ...]] = []

    def agree(found: tuple[float, ...]) -> tuple[float, ...]:
        asked.append(found)
        return 2.0, 3.0, 0.1

    machine = Machine(5.0, 5.0)
    machine.times.agree = agree
    told = machine.run(WARM_UP + 100, 4, lambda step: step % 6)
    assert told.model_dump() == TABLE.corrected(2.0, 3.0, 0.1).model_dump()
    assert len(asked) == 1 and min(asked[0][:2]) > 1.5 and asked[0][2] == pytest.approx(LOOK / machine.unit, rel=0.1)
    for _ in range(3 * EVERY):
        machine.times.cost(4, True)
    assert len(asked) == 4


def test_what_only_the_drafts_cost_is_corrected() -> None:
    table = StepCost(plain=((1, 1.0), (4, 1.2)), verifying=((2, 1.1), (10, 1.5)), drafting=((1, 0.2),))
    dearer = table.corrected(2.0, 0.5)
    assert dearer.step(3, 0) == table.step(3, 0)
    for rows, drafts in ((1, 1), (1, 6), (4, 8), (4, 40)):
        plain = table.step(rows, 0)
        assert dearer.step(rows, drafts) - plain == pytest.approx(2.0 * (table.step(rows, drafts) - plain))
    assert dearer.draft(3) == pytest.approx(0.1)
    looked = table.corrected(2.0, 0.5, look=0.1)
    assert looked.step(3, 0) == table.step(3, 0)
    assert looked.step(4, 8) == pytest.approx(dearer.step(4, 8) + 0.1)
