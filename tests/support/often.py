"""Which parameters of tests in real engines run every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


def each_of(names: Iterable[str], often: tuple[str, ...], value: Callable[[str], Any] = str) -> Iterator[Any]:
    """A parameter for every name, its ``value``; those that are not tested ``often`` have the mark `thorough`."""
    for name in names:
        yield pytest.param(value(name), id=name, marks=() if name in often else pytest.mark.thorough)
