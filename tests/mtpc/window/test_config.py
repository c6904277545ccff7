"""What a circuit window's keys may say."""

from __future__ import annotations

from typing import Any

import pytest

from mtpc.directory.checked_json import from_dict
from mtpc.errors import MTPCError
from mtpc.window.config import CircuitConfig

FITTING: dict[str, Any] = {
    "circuit": "btree",
    "window": 4,
    "rank": 3,
    "hidden_size": 8,
    "vocab_size": 11,
    "trunk_size": 5,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"circuit": "ring"}, "unknown circuit 'ring'"),
        ({"window": 0}, "at least 1"),
        ({"rank": 0}, "at least 1"),
        ({"circuit": "ff"}, "rank 1, not 3"),
        ({"leaves": "none"}, "leaves must be 'table' or 'shared', not 'none'"),
        ({"leaf_features": 0}, "leaf_features must be at least 1, not 0"),
        ({"sum_features": -1}, "sum_features must not be negative, but is -1"),
        ({"token_input": True, "trunk_size": 0}, "token_input needs a trunk_size"),
        ({"token_input": True, "window": 1}, "a window of at least 2"),
        ({"window": True}, "window must be of type int, but is True"),
    ],
    ids=str,
)
def test_what_no_window_can_be(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(MTPCError, match=expected):
        from_dict(CircuitConfig, FITTING | change)


def test_a_token_that_is_read_is_not_of_the_circuit() -> None:
    assert from_dict(CircuitConfig, FITTING).circuit_window == 4
    assert from_dict(CircuitConfig, FITTING | {"token_input": True}).circuit_window == 3
