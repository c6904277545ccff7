"""The learning rate: each part of it, and the two rates that the recipes that ship were trained with."""

from __future__ import annotations

import math

import pytest

from mtpc.lab.training.schedule import Schedule


def rates(schedule: Schedule) -> list[float]:
    return [schedule.rate(update) for update in range(schedule.updates)]


@pytest.mark.parametrize(("updates", "warmup"), [(700, 50), (2400, 50), (11, 3), (30, 50)])
def test_warm_up_then_constant_then_a_line_to_five_percent(updates: int, warmup: int) -> None:
    found = rates(Schedule(2e-3, updates, warmup, updates / 2, "linear", 0.05))
    expected = []
    for update in range(updates):
        decay = max(0.0, 2 * update / updates - 1)
        expected.append(2e-3 * min(1.0, (update + 1) / warmup) * (1 - 0.95 * decay))
    assert found == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("updates", "warmup"), [(100, 10), (3405, 170), (1, 1)])
def test_warm_up_then_a_cosine_to_zero(updates: int, warmup: int) -> None:
    found = rates(Schedule(1.0, updates, warmup, warmup, "cosine"))
    expected = [
        (update + 1) / warmup
        if update < warmup
        else 0.5 * (1 + math.cos(math.pi * (update - warmup) / max(1, updates - warmup)))
        for update in range(updates)
    ]
    assert found == pytest.approx(expected, rel=1e-12)


def test_without_warm_up_it_starts_at_the_peak() -> None:
    assert rates(Schedule(3.0, 4, 0, 2, "linear")) == pytest.approx([3.0, 3.0, 3.0, 1.5])
