"""Options that are made of the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.options.settings import After, with_settings

Size = Annotated[int, typer.Option(min=1, help="How large.")]


@dataclass(frozen=True)
class Inner:
    """Settings within settings."""

    width: Annotated[int, typer.Option(help="How wide.")] = 3
    fixed: int = 5


@dataclass(frozen=True)
class Outer:
    """size has no default here."""

    size: Size
    inner: Inner = field(default_factory=Inner)
    fixed: float = 0.5

    def __post_init__(self) -> None:
        if self.size == 13:
            raise MTPCError("not 13.")


@dataclass(frozen=True)
class Derived(Outer):
    """size has one here."""

    name: Annotated[str | None, typer.Option(help="What it is called.")] = None
    size: Size = 2


def given(kind: type, *line: str) -> Any:
    """What a command gets that is called so."""
    found: dict[str, Any] = {}

    def command(target: Annotated[Path, typer.Option()], settings: kind, last: Annotated[int, typer.Option()] = 1):  # type: ignore[valid-type,no-untyped-def]  # a type that is chosen
        """Say what it does."""
        found.update(target=target, settings=settings, last=last)

    command.__annotations__["settings"] = kind
    app = typer.Typer()
    app.command()(with_settings(command))
    result = CliRunner().invoke(app, line)
    return found or result


def test_fields_are_options_and_options_are_fields() -> None:
    found = given(Derived, "--target=x", "--name=n", "--width=7")
    assert found == {"target": Path("x"), "settings": Derived(2, Inner(7), 0.5, "n"), "last": 1}
    assert given(Outer, "--target=x", "--size=4", "--last=2") == {"target": Path("x"), "settings": Outer(4), "last": 2}


@pytest.mark.parametrize("line", [["--target=x"], ["--target=x", "--size=0"], ["--target=x", "--size=1", "--fixed=1"]])
def test_what_no_field_allows_is_refused(line: list[str]) -> None:
    assert given(Outer, *line).exit_code == 2


def test_what_the_dataclass_refuses_is_refused() -> None:
    assert isinstance(given(Outer, "--target=x", "--size=13").exception, MTPCError)


def test_the_help_is_the_command_s_and_what_a_class_adds_comes_first() -> None:
    help_ = given(Derived, "--help").output
    assert "Say what it does." in help_
    places = [help_.index(f"--{name}") for name in ("target", "name", "size", "width", "last")]
    assert places == sorted(places)
    assert "--fixed" not in help_


@dataclass(frozen=True)
class Moved:
    """early is declared after others that its option comes before."""

    inner: Inner = field(default_factory=Inner)
    height: Annotated[int, typer.Option(help="How high.")] = 4
    early: Annotated[int, After("target"), typer.Option(help="Comes early.")] = 6


def test_an_option_comes_after_the_one_that_it_names() -> None:
    help_ = given(Moved, "--help").output
    places = [help_.index(f"--{name}") for name in ("target", "early", "width", "height", "last")]
    assert places == sorted(places)
    assert given(Moved, "--target=x", "--early=1")["settings"] == Moved(early=1)
