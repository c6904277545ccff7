"""Chances by the length of the match, and the file that a directory keeps them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.prompt_lookup.table import COMMON, FILE, CopyTable


def test_a_directory_has_its_own_chances(tmp_path: Path) -> None:
    assert CopyTable.of(tmp_path).chances == COMMON
    (tmp_path / FILE).write_text(json.dumps({"chances": [0.1, 0.5], "counts": [[0, 1]]}))
    table = CopyTable.of(tmp_path)
    assert table.longest == 2
    assert table.after_match(1, 3) == pytest.approx([0.1, 0.5, 0.5])
    assert table.after_match(1, 1) == pytest.approx([0.1])
    assert table.after_match(7, 2) == pytest.approx([0.5, 0.5])
    assert table.after_match(0, 3) == [0.0, 0.0, 0.0]


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
        '{"chances": [0.5], "own": [1.0]}',
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
