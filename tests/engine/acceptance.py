"""How many drafts are accepted, in an engine and in the plain decoding loop: the same, within noise."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file
from scipy.stats import t

from mtpc.lab.check_acceptance.command import check_acceptance
from mtpc.lab.check_acceptance.report import Outcome
from mtpc.lab.check_acceptance.settings import CheckAcceptanceOptions
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.conftest import Models
from tests.engine.loop import TOKENS, Loop, Tree
from tests.engine.server import Server
from tests.oracles.decoding import Decoded

__all__ = [
    "TOKENS",
    "Loop",
    "Steps",
    "Tree",
    "assert_as_expected",
    "assert_equally_often",
    "counted",
    "outcome_of_check",
    "with_permuted_head",
]
ROWS = "head.leaves.unembedding"  # [V, d]


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


def with_permuted_head(drafter: Path, folder: Path) -> Path:
    """A drafter that ships, with its head's rows in the place of other tokens'."""
    shutil.copytree(drafter, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[ROWS] = tensors[ROWS].roll(1, dims=0)
    save_file(tensors, folder / "model.safetensors")
    return folder


def options_of_check(server: Server, models: Models) -> CheckAcceptanceOptions:
    """A check of few requests."""
    url = f"http://127.0.0.1:{server.port}"
    return CheckAcceptanceOptions(url, models.drafter, models.target, requests=12, length=TOKENS)


def outcome_of_check(server: Server, models: Models) -> Outcome:
    """What `mtpc check-acceptance` finds."""
    return check_acceptance(options_of_check(server, models), Console(quiet=True)).outcome


def assert_as_expected(server: Server, models: Models) -> None:
    """`mtpc check-acceptance` finds the very acceptance of the reference implementation; sampled, about as much."""
    greedy = options_of_check(server, models)
    report = check_acceptance(greedy, Console(quiet=True))
    assert report.outcome == "as expected", report.sentence
    assert report.acceptance_length == pytest.approx(report.expected_length, rel=1e-3)
    assert report.num_drafts == models.drafts and report.served == str(models.drafter)
    sampled = check_acceptance(replace(greedy, temperature=1.0), Console(quiet=True))
    assert sampled.outcome == "as expected", sampled.sentence
