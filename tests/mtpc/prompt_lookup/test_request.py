"""What a request would copy, and how sure it is of it."""

from __future__ import annotations

import math

import pytest

from mtpc.prompt_lookup.calibration import LARGEST
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.table import CopyTable

VOCABULARY = 1000
TABLE = CopyTable((0.2, 0.5, 0.8))


def test_the_text_of_a_request_grows() -> None:
    request, whole = CopyRequest(TABLE, [1, 2], VOCABULARY), [1, 2]
    for length in (0, 1, 3, 40, 2):
        new = list(range(length))
        request.append(new)
        whole += new
        assert request.text == whole
        assert request.output == whole[2:]


def test_a_longer_match_is_surer_and_copying_makes_it_longer() -> None:
    tokens, chances = CopyRequest(TABLE, [4, 5, 6, 7, 8, 4, 5], VOCABULARY).propose(4)
    assert tokens == [6, 7, 8, 4]
    assert chances == pytest.approx([0.5, 0.8, 0.8, 0.8])
    nothing = CopyRequest(TABLE, [4, 5, 6], VOCABULARY).propose(4)
    assert not any(nothing.chances)


@pytest.mark.parametrize("other", [VOCABULARY, 1_000_000_007, -1])
def test_an_id_that_is_no_token_is_not_copied(other: int) -> None:
    """As an engine may put in the place of an image; it may match all the same."""
    tokens, chances = CopyRequest(TABLE, [4, other, 5, other, other, 6, 4, other, 5], VOCABULARY).propose(3)
    assert (tokens, chances) == ([0, 0, 0], [0.0, 0.0, 0.0])
    tokens, chances = CopyRequest(TABLE, [other, 5, 6, other, 7, other, 5], VOCABULARY).propose(3)
    assert tokens == [6, 0, 0]
    assert chances == pytest.approx([0.5, 0.0, 0.0])


def test_what_came_true_counts() -> None:
    right, wrong = (
        CopyRequest(TABLE, [4, 5, 6, 7, 4, 5], VOCABULARY),
        CopyRequest(TABLE, [4, 5, 6, 7, 4, 5], VOCABULARY),
    )
    for request, token in ((right, 6), (wrong, 9)):
        before = request.propose(2).chances[0]
        request.append([token])
        assert (request.calibration.offset > 0) == (token == 6)
        after = request.calibration.corrected(request.table.after_match(2, 1))[0]
        assert (after > before) == (token == 6)


def test_chances_stay_below_one() -> None:
    request = CopyRequest(CopyTable((0.9999,)), [1, 1, 1, 1], VOCABULARY)
    for _ in range(50):
        assert max(request.propose(3).chances) <= LARGEST
        request.append([1])
    assert math.isfinite(request.calibration.offset)
