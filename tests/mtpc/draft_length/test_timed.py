"""What a server keeps of prices that it has worked out, however many sizes of batches it has seen."""

from __future__ import annotations

from mtpc.draft_length import timed
from mtpc.draft_length.choice import Prices
from mtpc.draft_length.cost import MEASURED, _along, _verify
from mtpc.draft_length.measured import WAITING, StepTimes
from mtpc.draft_length.timed import Timed

LONGEST = 10


def test_prices_that_are_kept_have_a_bound() -> None:
    asked = Timed(MEASURED, LONGEST, None)
    for greedy in (True, False):
        for rows in range(1, 400):
            asked.begin(greedy)
            found = asked.prices(rows)
            assert found.rows == rows and found.cost is MEASURED.of(greedy)
            assert sum(len(prices.drafted) for prices in asked._known.values()) == asked._numbers <= timed.KNOWN
    assert asked._prices(MEASURED.of(False), 399, False) is found  # the last ones are still there
    assert len(asked._known) > 40
    assert _verify.cache_info().maxsize == _along.cache_info().maxsize == 64


def test_corrections_replace_each_other() -> None:
    asked = Timed(MEASURED, LONGEST, None)
    for look in range(50):
        asked._prices(MEASURED.corrected(1.0 + look, 1.0), 16, True)
    assert len(asked._known) == 1
    assert asked._numbers == 16 * LONGEST + 2


def test_steps_of_a_size_that_always_rests_do_not_gather() -> None:
    times, prices = StepTimes(MEASURED), Prices(MEASURED, 4, 4 * LONGEST)
    for _ in range(2 * WAITING):
        times.end(prices, True, range(4), dict.fromkeys(range(4), 0), 0.0)
        times.skip(prices, True, range(4), dict.fromkeys(range(4), 0))
        (size,) = times.sizes.values()
        assert len(size.waiting) < WAITING
    assert size.steps > WAITING  # all of them are learned from
