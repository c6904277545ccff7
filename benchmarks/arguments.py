"""What the command lines of benchmarks have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from mtpc.errors import MTPCError

Value = TypeVar("Value")
Given = ParamSpec("Given")


def one_sentence(main: Callable[Given, None]) -> Callable[Given, int]:
    """The `main` of a benchmark with an exit code: 2 where something is wrong, which it says in one sentence."""

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
    """NAME=WHAT."""

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


def listed(kind: type) -> Any:
    """A list with commas."""
    return lambda text: [kind(part) for part in text.split(",") if part]
