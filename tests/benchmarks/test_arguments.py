"""What is wrong with a benchmark's arguments is one sentence, whichever benchmark it is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.arguments import check_names, one_sentence, output_file
from mtpc.errors import MTPCError


@one_sentence
def main(files: list[str]) -> None:
    if not files:
        raise MTPCError("there is no file.")


def test_what_is_wrong_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a"]) == 0
    assert main([]) == 2
    assert capsys.readouterr().err == "test_arguments: there is no file.\n"


def test_the_folder_of_an_output_is_there_before_the_work_starts(tmp_path: Path) -> None:
    file = output_file(str(tmp_path / "new" / "deep" / "out.json"))
    assert not file.exists()
    file.write_text("{}")
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written: Not a directory"):
        output_file(str(tmp_path / "file" / "out.json"))


def test_a_misspelt_name_is_not_left_out() -> None:
    check_names("--drafts", [("own", 3)], ["own", "other"])
    with pytest.raises(MTPCError, match="--drafts names 'onw', which is not measured; measured: own, other"):
        check_names("--drafts", [("own", 3), ("onw", 3)], ["own", "other"])
