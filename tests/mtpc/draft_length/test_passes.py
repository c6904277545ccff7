"""Whether a draft goes on after a pass, against every length that it could come to."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from mtpc.draft_length.choice import Prices
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.passes import Passes, Row
from mtpc.prompt_lookup.request import Proposal

LONGEST = 6


def reached(chances: list[float]) -> list[float]:
    """Of tokens each of which is right with these chances where those before it are."""
    return [prod(chances[: place + 1]) for place in range(len(chances))]


def row(tokens: list[int], chances: list[float], drafted: list[tuple[int, float]], typical: float = 0.5) -> Row:
    """Of which these tokens, with their chances, were drafted."""
    made = Row(Proposal(tokens, chances), LONGEST, typical)
    for token, chance in drafted:
        made.drafted(token, chance)
    return made


def test_what_is_copied_so_far_goes_on_being_copied() -> None:
    copied = [1, 2, 3, 4, 5, 6, 7], [0.6, 0.7, 0.8, 0.85, 0.9, 0.9, 0.9]
    as_copied = row(*copied, [(1, 0.9), (2, 0.95)])
    assert as_copied.ended() == pytest.approx(reached([0.9, 0.95, 0.8, 0.85, 0.9, 0.9]))
    assert as_copied.gone_on() == pytest.approx(reached([0.9, 0.95, 0.8, 0.85, 0.9, 0.9]))
    surer = row(*copied, [(1, 0.9), (2, 0.95)], typical=0.9)
    assert surer.gone_on() == pytest.approx(reached([0.9, 0.95, 0.9, 0.85, 0.9, 0.9]))
    another = row(*copied, [(1, 0.9), (9, 0.95)])
    assert another.ended() == pytest.approx(reached([0.9, 0.95]))
    assert another.gone_on() == pytest.approx(reached([0.9, 0.95, 0.5]))
    another.drafted(3, 0.9)  # once it is another text, it is no copy again
    assert another.ended() == pytest.approx(reached([0.9, 0.95, 0.9]))


def test_nothing_is_copied_where_there_is_nothing() -> None:
    alone = row([0] * 7, [0.0] * 7, [(0, 0.9)])
    assert alone.ended() == [0.9]
    assert alone.gone_on() == pytest.approx([0.9, 0.45])


def best_rate(rows: list[list[float]], cost: StepCost, spent: float) -> float:
    """Of every way to cut these drafts."""
    lengths = np.ndindex(*(len(each) + 1 for each in rows))
    return max(
        (len(rows) + sum(sum(each[:end]) for each, end in zip(rows, ends, strict=True)))
        / (cost.step(len(rows), sum(ends)) + spent)
        for ends in lengths
    )


@pytest.mark.parametrize("requests", [1, 3])
def test_a_pass_is_made_where_more_tokens_for_the_time_are_foreseen_with_it(requests: int) -> None:
    cost = StepCost(verifying=((1, 1.0), (2, 1.1), (3, 1.0), (20, 2.0)), drafting=((1, 0.3), (16, 1.0)))
    rng, prices, went_on = np.random.default_rng(0), Prices(cost, requests, requests * LONGEST), []
    for _ in range(60):
        rows, drafts = [], 1 + int(rng.integers(3))
        for _ in range(requests):
            copied = Proposal([1] * LONGEST, [float(chance) for chance in rng.uniform(0.2, 0.95, LONGEST)])
            drafted = [(1 + int(rng.integers(3) > 1), float(rng.uniform(0.05, 0.95))) for _ in range(drafts)]
            rows.append(row(*copied, drafted, typical=float(rng.uniform(0.2, 0.9))))
        passes = Passes([*rows, None], prices, lambda made: 0.08 * (1 + made), trust=1.0)
        passes.done = drafts
        ended, gone_on = [each.ended() for each in rows], [each.gone_on() for each in rows]
        expected = best_rate(gone_on, cost, 0.08 * (2 + drafts)) > best_rate(ended, cost, 0.08 * (1 + drafts))
        assert passes.go_on() == expected
        went_on.append(expected)
    assert 5 < sum(went_on) < 55


def test_requests_that_get_no_draft_are_left_out() -> None:
    one = row([0] * LONGEST, [0.0] * LONGEST, [])
    passes = Passes([None, one], Prices(StepCost(), 2, 2 * LONGEST), lambda _: 0.0, trust=1.0)
    passes.drafted([7, 8], [0.0, 0.75])
    assert (passes.done, one.reached) == (1, [0.75])
