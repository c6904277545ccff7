"""What the command lines of benchmarks have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


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
