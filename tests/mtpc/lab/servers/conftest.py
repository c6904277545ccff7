"""The registry is left as it was found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.random_hybrid import forget_the_family


@pytest.fixture(autouse=True)
def families_as_before() -> Iterator[None]:
    """A test may have made a drafter of the third family, which makes the family known."""
    yield
    forget_the_family()
