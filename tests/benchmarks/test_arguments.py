"""What is wrong with a benchmark's arguments is one sentence, whichever benchmark it is."""

from __future__ import annotations

import pytest

from benchmarks.arguments import one_sentence
from mtpc.errors import MTPCError


@one_sentence
def main(files: list[str]) -> None:
    if not files:
        raise MTPCError("there is no file.")


def test_what_is_wrong_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a"]) == 0
    assert main([]) == 2
    assert capsys.readouterr().err == "test_arguments: there is no file.\n"
