"""What a request would copy, how sure it is of it, and how far it is worth it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mtpc.copying.length import worthwhile
from mtpc.copying.request import CopyRequest
from mtpc.copying.table import LARGEST, CopyTable

TABLE = CopyTable((0.2, 0.5, 0.8))


def test_the_text_of_a_request_grows() -> None:
    request, whole = CopyRequest(TABLE, [1, 2]), [1, 2]
    for length in (0, 1, 3, 40, 2):
        new = list(range(length))
        request.append(new)
        whole += new
        assert request.text.tolist() == whole


def test_a_longer_match_is_surer_and_copying_makes_it_longer() -> None:
    tokens, chances = CopyRequest(TABLE, [4, 5, 6, 7, 8, 4, 5]).propose(4)
    assert tokens.tolist() == [6, 7, 8, 4]
    assert chances.tolist() == pytest.approx([0.5, 0.8, 0.8, 0.8])
    nothing = CopyRequest(TABLE, [4, 5, 6]).propose(4)
    assert not nothing.chances.any()


def test_what_came_true_counts() -> None:
    right, wrong = CopyRequest(TABLE, [4, 5, 6, 7, 4, 5]), CopyRequest(TABLE, [4, 5, 6, 7, 4, 5])
    for request, token in ((right, 6), (wrong, 9)):
        before = request.propose(2).chances[0]
        request.append([token])
        assert (request.shift > 0) == (token == 6)
        after = request.table.along(2, 1, request.shift)[0]
        assert (after > before) == (token == 6)


def test_chances_stay_below_one() -> None:
    request = CopyRequest(CopyTable((0.9999,)), [1, 1, 1, 1])
    for _ in range(50):
        assert request.propose(3).chances.max() <= np.float32(LARGEST)
        request.append([1])
    assert math.isfinite(request.shift)


@pytest.mark.parametrize("cost", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.99])
def test_no_other_length_says_more_in_the_same_time(chance: float, drafts: int, cost: float) -> None:
    chances = np.full(20, chance, dtype=np.float32)
    reached = np.cumprod(chances.astype(float))
    gains = [(1 + reached[:k].sum()) / (1 + cost * k) for k in range(drafts, 21)]
    assert worthwhile(chances, drafts, cost) == int(np.argmax(gains))


def test_nothing_is_added_to_what_is_not_copied() -> None:
    assert worthwhile(np.zeros(0, dtype=np.float32), 3) == 0
