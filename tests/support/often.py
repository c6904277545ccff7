"""Which parameters of tests in real engines run every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest


def each(names: Iterable[str], often: tuple[str, ...]) -> Iterator[Any]:
    """Every name as a parameter; those that are not tested ``often`` have the mark `thorough`."""
    for name in names:
        yield pytest.param(name, id=name, marks=() if name in often else pytest.mark.thorough)
