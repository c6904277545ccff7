"""The registry is left as it was found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.random_hybrid import forget_method


@pytest.fixture(autouse=True)
def methods_as_before() -> Iterator[None]:
    """A test may have made a drafter of the third draft method, which makes the draft method known."""
    yield
    forget_method()
