"""Shared command-line helpers of the benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from mtpc.errors import MTPCError
from mtpc.lab.output_paths import try_file

Value = TypeVar("Value")
Given = ParamSpec("Given")


def one_sentence(main: Callable[Given, None]) -> Callable[Given, int]:
    """Wrap the `main` of a benchmark so that it returns an exit code.

    The code is 2 after an `MTPCError`, whose message is printed to stderr, and 0 otherwise.
    """

    @wraps(main)
    def run(*given: Given.args, **named: Given.kwargs) -> int:
        try:
            main(*given, **named)
        except MTPCError as error:
            file = Path(main.__code__.co_filename)
            print(f"{file.parent.name if file.stem == '__main__' else file.stem}: {error}", file=sys.stderr)
            return 2
        return 0

    return run


def named(what: str, kind: Callable[[str], Value]) -> Callable[[str], tuple[str, Value]]:
    """Return an argparse type that parses NAME=VALUE.

    Args:
        what: Placeholder for the value in the error message.
        kind: Converts the value.
    """

    def parsed(text: str) -> tuple[str, Value]:
        name, _, value = text.partition("=")
        try:
            if name and value:
                return name, kind(value)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"expected NAME={what}, not {text!r}")

    return parsed


named_folder = named("DIR", Path)
named_number = named("K", int)
named_argument = named("ARGUMENT", str)


def output_file(text: str) -> Path:
    """Parse the path of a file to write, as an argparse type.

    It is tried at once, and its folder is created, because benchmarks write after hours of work.
    """
    file = Path(text)
    try:
        try_file(file)
    except MTPCError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def check_names(option: str, given: Iterable[tuple[str, object]], known: Iterable[str]) -> None:
    """Check that each NAME=VALUE of an option names something that is measured.

    Args:
        option: The option.
        given: Its names and values.
        known: The names that other options have introduced.

    Raises:
        MTPCError: A name is unknown.
    """
    names = list(known)
    for name, _ in given:
        if name not in names:
            raise MTPCError(f"{option} names {name!r}, which is not measured; measured: {', '.join(names) or 'none'}.")


def listed(kind: type) -> Any:
    """Return an argparse type that parses a comma-separated list."""
    return lambda text: [kind(part) for part in text.split(",") if part]
