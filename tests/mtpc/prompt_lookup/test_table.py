"""Chances by the length of the match, and the file that a directory keeps them in."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.prompt_lookup.table import COMMON, FILE, CopyTable


def test_a_directory_has_its_own_chances(tmp_path: Path) -> None:
    assert CopyTable.of(tmp_path).chances == COMMON
    (tmp_path / FILE).write_text(json.dumps({"chances": [0.1, 0.5], "own": [0.3, -0.4], "counts": [[0, 1]]}))
    table = CopyTable.of(tmp_path)
    assert table.own == (0.3, -0.4)
    logits = [math.log(chance / (1 - chance)) for chance in table.of_drafter([0.5, 0.5, 0.5])]
    assert logits == pytest.approx([0.3, -0.4, -0.4])
    assert table.of_drafter([0.0]) == [0.0]
    assert table.longest == 2
    assert table.after_match(1, 3) == pytest.approx([0.1, 0.5, 0.5])
    assert table.after_match(1, 1) == pytest.approx([0.1])
    assert table.after_match(7, 2) == pytest.approx([0.5, 0.5])
    assert table.after_match(0, 3) == [0.0, 0.0, 0.0]


def test_what_is_drawn_has_a_correction_of_its_own(tmp_path: Path) -> None:
    stated = {"chances": [0.5], "own": [0.3], "own_sampled": [0.1, -0.2], "slope": [1.0, 0.25]}
    (tmp_path / FILE).write_text(json.dumps(stated))
    table = CopyTable.of(tmp_path)
    logits = [math.log(chance / (1 - chance)) for chance in table.of_drafter([0.8, 0.8], 1.0, greedy=False)]
    assert logits == pytest.approx([math.log(4) / 4 + 1.1, math.log(4) / 4 + 0.8])
    assert table.of_drafter([0.8]) == pytest.approx([4 * math.exp(0.3) / (1 + 4 * math.exp(0.3))])


def test_chances_of_copies_are_corrected_by_place() -> None:
    table = CopyTable((0.2, 0.5), copied=(0.4, -0.3))
    logits = [math.log(chance / (1 - chance)) for chance in table.after_match(1, 3)]
    assert logits == pytest.approx([math.log(0.2 / 0.8) + 0.4, -0.3, -0.3])
    assert table.after_match(0, 2) == [0.0, 0.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"chances": []}',
        '{"chances": [0.5, 1.0]}',
        '{"chances": ["0.5"]}',
        '{"chances": [NaN]}',
        '{"chances": [0.5], "own": [9]}',
        '{"chances": [0.5], "owns": [1.0]}',
        '{"chances": [0.5], "slope": [1.0, 0.0]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_holds_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(MTPCError, match=FILE):
        CopyTable.of(tmp_path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(MTPCError, match="is not a file, or is a broken link"):
        CopyTable.of(tmp_path)
