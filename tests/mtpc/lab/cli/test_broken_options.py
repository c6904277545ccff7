"""Every declared option with what its declaration forbids: one sentence, exit code 2, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from mtpc.lab.cli.main import app
from mtpc.lab.options.names import NameList, address
from mtpc.lab.options.numbers import Bounds, NumberList
from mtpc.lab.options.paths import file_to_write, folder_to_write, new_folder
from tests.mtpc.lab.cli.options import Option, files_of, least_line, options

ALL = options()
NO_NUMBER = cycle(("", "x", "nan", "inf", "1e400", "9" * 5000))
LONG = "x" * 300


def out_of_bounds(least: float, most: float, or_zero: bool = False) -> Iterator[str]:
    """Numbers just out of bounds, and two by turns that are no finite number: all options read numbers alike."""
    yield str(least - 1) if isinstance(least, int) else repr(min(least - 1e-6, -0.5) if or_zero else least - 1e-6)
    yield str(most + 1) if isinstance(most, int) else repr(most * 1.001)
    yield next(NO_NUMBER)
    yield next(NO_NUMBER)


def broken(option: Option) -> Iterator[str]:
    """Values that an option must refuse; paths are those of `places`."""
    parser, info = option.info.parser, option.info
    if isinstance(parser, Bounds):
        yield from out_of_bounds(parser.least, parser.most, parser.or_zero)
    elif isinstance(parser, NumberList):
        for value in out_of_bounds(parser.each.least, parser.each.most, parser.each.or_zero):
            yield value
            yield f"{parser.each.least},{value}"
        yield ",".join([str(parser.each.least)] * (parser.most + 1))
    elif isinstance(parser, NameList):
        yield from ("", "another", f"{parser.names[0]},another")
    elif option.kind in (int, float):
        assert info.min is not None and info.max is not None, f"{option} has no bounds"
        yield from out_of_bounds(option.kind(info.min), option.kind(info.max))
        if option.kind is int:
            yield "1.5"
    elif get_origin(option.kind) is Literal:
        yield from ("", "another", get_args(option.kind)[0].upper())
    elif info.callback is address:
        yield from ("", "x", "http://", "ftp://127.0.0.1", "http://127.0.0.1:99999", "file:///etc/passwd")
    elif info.callback in (folder_to_write, new_folder):
        yield from ("file", "file/below", "file/far/below", f"folder/{LONG}", "loop", "/proc/nothing")
    elif info.callback is file_to_write:
        yield from ("folder", "file/below", "file/far/below", f"new/{LONG}", "loop", "/proc/nothing")


COMMANDS = cache(typer.main.get_command)
CASES = [(option, value) for option in ALL for value in broken(option)]


@pytest.fixture(autouse=True)
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer makes its commands of all options once, not for every test."""
    monkeypatch.setattr("typer.testing._get_command", COMMANDS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with what is in the way of outputs."""
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    return tmp_path


def refused(*arguments: str) -> str:
    """Return the sentence that a command prints on stderr when it fails; assert that it changes no file."""
    before = files_of(Path.cwd())
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("mtpc: ") and result.stderr.endswith(".\n"), result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    assert files_of(Path.cwd()) == before
    assert Path("file").read_text() == "mine"
    return result.stderr


@pytest.mark.parametrize("words", dict.fromkeys(option.words for option in ALL), ids=" ".join)
def test_what_an_option_may_not_be(words: tuple[str, ...], here: Path, subtests: pytest.Subtests) -> None:
    for option, value in (case for case in CASES if case[0].words == words):
        with subtests.test(f"{option} {value[:40]}"):
            sentence = refused(*least_line(words, option), *option.given(value))
            if option.name and option.info.callback not in (folder_to_write, new_folder, file_to_write):
                assert f"'{option.name}'" in sentence
            elif option.name:
                assert "cannot be written" in sentence


def test_there_are_enough_of_them() -> None:
    assert len(CASES) > 120
    assert len({option.words for option, _ in CASES}) >= 11


def test_every_number_has_bounds_and_every_output_is_tried(subtests: pytest.Subtests) -> None:
    for option in ALL:
        number = option.kind in (int, float) or option.info.parser is not None
        if number or (option.name in ("--out", "--resume") and option.words != ("plan",)):
            with subtests.test(str(option)):
                assert list(broken(option))


@pytest.mark.parametrize("out", ["file.yaml/below.yaml", f"{LONG}.yaml", "/proc/nothing.yaml", "folder.yaml"])
def test_the_configuration_of_plan_is_tried_before_the_results_are_read(out: str, here: Path) -> None:
    Path("file.yaml").write_text("mine")
    Path("folder.yaml").mkdir()
    assert "results.json" not in refused("plan", "results.json", "--out", out)


def test_drafters_whose_names_cannot_be_folders(here: Path) -> None:
    for prefix in ("", "a/b", "../b", LONG):
        assert "cannot begin a folder name" in refused("train", "mtpc", "--target", "a", "--prefix", prefix)


def test_an_output_that_is_tried_is_as_before(here: Path) -> None:
    attempts = [("new/far/folder", folder_to_write), ("new/folder", new_folder), ("new/file", file_to_write)]
    for path, attempt in (*attempts, ("file", file_to_write)):
        before = files_of(here)
        assert attempt(Path(path)) == Path(path)
        assert files_of(here) == before
    assert Path("file").read_text() == "mine"
    Path("link").symlink_to("nothing")
    file_to_write(Path("link"))
    assert files_of(here) == ["file", "folder", "link", "loop"]


def test_values_that_are_allowed(here: Path) -> None:
    """The ends of a range are in it: what is refused then is a target that is not there."""
    for option in ALL:
        bounds: tuple[Any, ...] = ()
        if isinstance(option.info.parser, Bounds):
            bounds = (option.info.parser.least, option.info.parser.most)
        elif isinstance(option.info.parser, NumberList):
            bounds = (option.info.parser.each.least, option.info.parser.each.most)
        elif option.kind in (int, float):
            bounds = (option.info.min, option.info.max)
        for value in bounds:
            line = [*least_line(option.words, option), *option.given(str(value))]
            assert "Invalid value" not in CliRunner().invoke(app, line).stderr, line
