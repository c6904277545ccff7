"""What steps cost, timed."""

from __future__ import annotations

import pytest

from mtpc.draft_length.cost import (
    ALWAYS_MEASURED,
    DEFAULT_COSTS,
    FREE_DRAFTS,
    MEASURED_REQUESTS,
    MEASURED_TOKENS,
    Sampling,
    measure_costs,
)


class Machine:
    """An engine whose steps take a tenth of a second and a hundredth for each token, and its clock."""

    def __init__(self, slower: float = 1.0) -> None:
        self.now, self.slower, self.calls = 0.0, slower, list[int]()

    def __call__(self) -> float:
        return self.now

    def step(self, tokens: int) -> None:
        self.calls.append(tokens)
        again = self.calls.count(tokens) > 1
        self.now += self.slower * (0.1 + 0.01 * tokens) * (1 if again else 5)  # what runs first is prepared

    def draft(self, requests: int) -> None:
        self.now += self.slower * 0.02 * requests


def test_the_table_is_what_was_timed() -> None:
    machine = Machine(0.05)
    cost = measure_costs(machine.step, machine.draft, 64, 16, clock=machine)
    assert [tokens for tokens, _ in cost.verifying] == list(MEASURED_TOKENS)
    assert [times for _, times in cost.verifying] == pytest.approx([(0.1 + 0.01 * n) / 0.11 for n, _ in cost.verifying])
    assert cost.drafting == tuple((n, pytest.approx(0.02 * n / 0.11)) for n in MEASURED_REQUESTS)
    assert cost.plain == cost.verifying
    assert "1: 1.00" in cost.summary


def test_sampled_steps_cost_more() -> None:
    """Sampling takes a hundredth of a second for a request, rejection sampling three times that for a token."""
    machine = Machine(0.05)

    def pause(seconds: float) -> None:
        machine.now += 0.05 * seconds

    sampling = Sampling(lambda n: pause(0.01 * n), lambda n: pause(0.03 * n), lambda n: pause(0.05 * n))
    greedy = measure_costs(machine.step, machine.draft, 64, 16, sampling, clock=machine)
    cost = greedy.of(greedy=False)
    assert greedy.plain == tuple((n, pytest.approx((0.1 + 0.01 * n) / 0.11)) for n in MEASURED_TOKENS)
    assert cost.plain == tuple((n, pytest.approx((0.1 + 0.02 * n) / 0.11)) for n in MEASURED_TOKENS if n <= 16)
    assert cost.verifying[1:] == tuple((n, pytest.approx((0.1 + 0.04 * n) / 0.11)) for n in MEASURED_TOKENS if n > 1)
    assert cost.verifying[0] == cost.plain[0]  # a step without drafts is sampled
    assert cost.drafting == tuple((n, pytest.approx(0.05 * n / 0.11)) for n in MEASURED_REQUESTS)
    assert greedy.of(greedy=True).step(4, 4) < cost.step(4, 4)


def test_what_interrupts_a_step_does_not_count() -> None:
    """Every step of one round is twice as slow."""
    machine = Machine(0.05)
    quiet = machine.step

    def step(tokens: int) -> None:
        machine.slower = 0.1 if machine.calls.count(tokens) == 2 else 0.05
        quiet(tokens)

    machine.step = step  # type: ignore[method-assign]
    cost = measure_costs(machine.step, None, 16, 16, clock=machine)
    assert [times for _, times in cost.verifying] == pytest.approx([(0.1 + 0.01 * n) / 0.11 for n, _ in cost.verifying])


def test_a_slow_machine_times_what_is_needed_once() -> None:
    machine = Machine(40.0)
    cost = measure_costs(machine.step, None, 64, 16, clock=machine)
    assert cost.drafting == ((1, 0.0),)
    assert machine.calls == 2 * [tokens for tokens in MEASURED_TOKENS if tokens <= ALWAYS_MEASURED]
    assert cost.step(8, 24) > 1.5 * cost.step(8, 0)


@pytest.mark.parametrize("preparing", [0.5, 3.0, 30.0])
def test_first_calls_do_not_count_however_long_they_take(preparing: float) -> None:
    """The first call of all takes longest, so its time as the unit would make all longer steps look free."""
    machine = Machine(0.05)
    warm = machine.step

    def step(tokens: int) -> None:
        machine.now += preparing / tokens if tokens not in machine.calls else 0.0
        warm(tokens)

    cost = measure_costs(step, machine.draft, 16, 16, clock=machine)
    assert [times for _, times in cost.verifying] == pytest.approx([(0.1 + 0.01 * n) / 0.11 for n, _ in cost.verifying])
    assert cost.drafting == tuple((n, pytest.approx(0.02 * n / 0.11)) for n in MEASURED_REQUESTS)


def test_a_step_that_is_always_held_up_does_not_make_longer_ones_cheap() -> None:
    """As the one token of the unit, by which all costs are divided."""
    machine = Machine(0.05)
    quiet = machine.step

    def step(tokens: int) -> None:
        machine.now += 2.0 if tokens in (1, 2, 6) else 0.0
        quiet(tokens)

    cost = measure_costs(step, machine.draft, 16, 16, clock=machine)
    expected = {1: 0.13, 2: 0.13, 3: 0.13, 4: 0.14, 6: 0.18, 8: 0.18, 12: 0.22, 16: 0.26}
    assert cost.verifying == tuple((n, pytest.approx(seconds / 0.13)) for n, seconds in expected.items())
    assert cost.drafting == tuple((n, pytest.approx(0.02 * n / 0.13)) for n in MEASURED_REQUESTS)


def test_ranks_call_as_often_as_the_first_one_says() -> None:
    """Whatever their own clocks say."""
    slow, fast = Machine(40.0), Machine(0.01)
    measured: list[float] = []

    def tell(seconds: float) -> float:
        measured.append(seconds)
        return seconds

    first = measure_costs(slow.step, slow.draft, 64, 16, None, tell, slow)
    second = measure_costs(fast.step, fast.draft, 64, 16, None, lambda _: measured.pop(0), fast)
    assert first == second
    assert slow.calls == fast.calls


def test_free_drafts_cost_nothing() -> None:
    assert FREE_DRAFTS.step(4, 40) == FREE_DRAFTS.step(4, 0)


def test_costs_that_are_neither_measured_nor_set() -> None:
    """Steps of two to six tokens cost about one of one; the last points of the curves continue beyond them."""
    for greedy, of_64 in ((True, 4.1), (False, 4.1)):
        cost = DEFAULT_COSTS.of(greedy)
        assert cost.read(1) == cost.read(3) == 1.0 and cost.read(64) == of_64
        assert cost.read(65) > cost.read(64)
    assert DEFAULT_COSTS.of(greedy=False).draft(1) > DEFAULT_COSTS.of(greedy=True).draft(1)
