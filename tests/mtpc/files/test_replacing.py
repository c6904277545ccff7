"""Files that take the place of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpc.files.replacing import replacing


def test_the_one_before_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with replacing(path) as unfinished:
        unfinished.write_text("af")
        assert path.read_text() == "before"
        unfinished.write_text("after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_several_may_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # it ends last
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("written", [True, False])
def test_what_fails_leaves_nothing(tmp_path: Path, written: bool) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def fail() -> None:
        with replacing(path) as unfinished:
            if written:
                unfinished.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
