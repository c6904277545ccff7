"""Which parameters of tests in real engines run every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_of(names: Iterable[str], often: tuple[str, ...], value: Callable[[str], Any] = str) -> list[Any]:
    """A parameter for every name, its ``value``; those that are not tested ``often`` have the mark `thorough`.

    A list: several tests may share it, and with an iterator all but the first of them would be skipped.
    """
    thorough = pytest.mark.thorough
    return [pytest.param(value(name), id=name, marks=() if name in often else thorough) for name in names]
