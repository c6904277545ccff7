"""Which parameters of tests in real engines run every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item")


def each_of(names: Iterable[str], often: tuple[str, ...], value: Callable[[str], Any] = str) -> list[Any]:
    """A parameter for every name, its ``value``; those that are not tested ``often`` have the mark `thorough`.

    A list: several tests may share it, and with an iterator all but the first of them would be skipped.
    """
    thorough = pytest.mark.thorough
    return [pytest.param(value(name), id=name, marks=() if name in often else thorough) for name in names]


def ends_of(items: Sequence[Item], config: pytest.Config) -> Sequence[Item]:
    """All of them if `--thorough` asks for them, otherwise the first and the last."""
    return items if config.getoption("--thorough") or len(items) < 2 else (items[0], items[-1])
