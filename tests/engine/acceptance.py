"""How many drafts are accepted, in an engine and in the plain decoding loop: the same, within noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import t

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.loop import TOKENS, Loop, Tree
from tests.oracles.decoding import Decoded

__all__ = ["TOKENS", "Loop", "Steps", "Tree", "assert_equally_often", "counted"]


class Steps(NamedTuple):
    """Decoding steps, and the drafts that were accepted in them."""

    steps: int
    accepted: int


def counted(decoded: Decoded) -> Steps:
    """The loop's figures."""
    return Steps(len(decoded.accepted), sum(decoded.accepted))


def assert_equally_often(served: Sequence[Steps], looped: Sequence[Steps]) -> None:
    """Accepted drafts a step agree within noise: served and in the loop, for each prompt.

    Under one common rate, what a prompt accepts beyond that rate is zero in expectation, in both.
    """
    rate = sum(one.accepted for one in (*served, *looped)) / sum(one.steps for one in (*served, *looped))
    surplus = [[(one.accepted - rate * one.steps) / one.steps for one in both] for both in (served, looped)]
    differences = [a - b for a, b in zip(*surplus, strict=True)]
    noise = stdev(differences) / math.sqrt(len(differences))
    assert noise < rate / 5, "too few prompts to tell"
    assert abs(fmean(differences)) < t.isf(REJECT_BELOW / 2, len(differences) - 1) * noise
