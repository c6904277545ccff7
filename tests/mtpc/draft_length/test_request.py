"""How a request's acceptance rate follows what is accepted."""

from __future__ import annotations

import pytest

from mtpc.draft_length.request import LEARNING_RATE, DraftedRequest


def rates(emitted: int, depth: int) -> tuple[float, float]:
    """Return the acceptance rate before and after a tree.

    emitted: accepted tokens and the bonus token.  depth: of the tree.
    """
    request = DraftedRequest(None)
    before = request.rate
    request.drafted_tree(depth)
    request.observe([7] * emitted)
    return before, request.rate


def test_the_rate_follows_the_path_that_was_accepted_of_a_tree() -> None:
    for emitted, depth, path in ((1, 3, [0]), (3, 3, [1, 1, 0]), (4, 3, [1, 1, 1])):
        rate, after = rates(emitted, depth)
        for accepted in path:
            rate += LEARNING_RATE * (accepted - rate)
        assert after == pytest.approx(rate)
