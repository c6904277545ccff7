"""Draft tokens along a text: predicted and observed acceptance."""

from __future__ import annotations

import math
from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.calibration import Clock, Token, calibration, drafted, drawn, fitted, regression
from mtpc.lab.evaluation.texts import GeneratedText
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import load_drafter
from mtpc.prompt_lookup.table import CopyTable
from tests.support.random_models import make_copying, make_drafter, make_target

TEXT = [*range(40, 60), *range(40, 60), 1]


def test_what_is_copied_is_compared_with_the_text(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    drafter, clock = load_drafter(make_copying(tmp_path / "drafter", target)), Clock()
    found = list(drafted(FrozenTarget(target), drafter, CopyTable(), GeneratedText(TEXT, 22), 10, clock))
    assert {token.by for token in found} == {"prompt lookup"}
    assert sum(token.accepted for token in found) > 10  # the second half repeats the first but for the last token
    assert sum(not token.accepted for token in found) == 1
    assert all(0 < token.predicted < 1 for token in found)
    assert clock.steps > 1 and clock.seconds > 0


def test_the_table_has_means_by_place() -> None:
    tokens = [Token(1, "drafter", 0.5, True), Token(1, "drafter", 0.7, False), Token(2, "drafter", 0.9, True)]
    rows = calibration([*tokens, Token(3, "prompt lookup", 0.25, True)]).rows
    assert rows[0] == ["drafter", "1", "2", "0.600", "0.500", "-0.100"]
    assert rows[1] == ["drafter", "2", "1", "0.900", "1.000", "+0.100"]
    assert rows[2] == ["drafter", "all", "3", "0.700", "0.667", "-0.033"]
    assert rows[3] == ["prompt lookup", "3", "1", "0.250", "1.000", "+0.750"]


def test_shifts_are_what_would_have_been_right() -> None:
    tokens = [Token(1, "drafter", 0.5, True)] * 79 + [Token(1, "drafter", 0.5, False)] * 19
    tokens += [Token(3, "drafter", 0.5, True)] * 49 + [Token(3, "drafter", 0.5, False)] * 49
    more = [*tokens, Token(2, "prompt lookup", 0.1, True)]
    assert fitted(more, "drafter", [0.5, 0.25]) == [round(0.5 + math.log(4), 2), 0.25]
    copied = [Token(1, "prompt lookup", 0.5, True)] * 8
    assert fitted(copied, "prompt lookup", [0.0]) == [round(math.log(9), 2)]


def test_what_is_drawn_counts_up_to_what_is_rejected(tmp_path: Path) -> None:
    folder = make_target(tmp_path / "target")
    drafter, target = load_drafter(make_drafter(tmp_path / "drafter", folder, "cp")), FrozenTarget(folder)
    given = Namespace(longest=10, max_tokens=60, temperature=1.0)
    found = list(drawn(target, drafter, CopyTable(), [GeneratedText(TEXT, 22)], given))
    drafts = drafter.config.num_drafts
    assert {token.position for token, _ in found} <= set(range(1, drafts + 1))
    for (token, peak), (following, _) in pairwise(found):
        assert token.predicted == CopyTable().of_drafter([peak], greedy=False)[0]
        assert following.position == (token.position % drafts + 1 if token.accepted else 1)
    assert {token.accepted for token, _ in found} == {True, False}


def test_the_regression_finds_what_chances_were_made_of() -> None:
    rng = np.random.default_rng(0)
    peaks = rng.uniform(0.05, 0.95, 20000)
    chances = 1 / (1 + np.exp(-(0.3 + 0.6 * np.log(peaks / (1 - peaks)))))
    added, slope = regression(peaks.tolist(), (rng.uniform(size=20000) < chances).tolist())
    assert abs(added - 0.3) < 0.06 and abs(slope - 0.6) < 0.06
