"""What a circuit window's keys may say."""

from __future__ import annotations

from typing import Any

import pytest

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.methods.mtpc import MTPCConfig
from mtpc.parallel.config import CircuitConfig, ParallelConfig

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
        ({"window": 0}, "it is 0, but should be greater than or equal to 1"),
        ({"rank": 0}, "at 'rank'"),
        ({"window": 257}, "it is 257, but should be less than or equal to 256"),
        ({"rank": 10**30}, "at 'rank'"),
        ({"circuit": "ff"}, "rank 1, not 3"),
        ({"leaves": "none"}, "at 'leaves': it is 'none', but should be 'shared', 'table' or 'target'"),
        ({"leaf_features": 0}, "at 'leaf_features': it is 0"),
        ({"sum_features": -1}, "at 'sum_features': it is -1, but should be greater than or equal to 0"),
        ({"token_input": True, "trunk_size": 0}, "token_input needs a trunk_size"),
        ({"token_input": True, "window": 1}, "a window of at least 2"),
        ({"window": True}, "at 'window': it is True, but should be a valid integer"),
    ],
    ids=str,
)
def test_what_no_window_can_be(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(MTPCError, match=expected):
        validated(CircuitConfig, FITTING | change, "it")


def test_an_mtpc_drafter_drafts_at_least_one_token() -> None:
    with pytest.raises(MTPCError, match="at 'window': it is 1, but should be greater than or equal to 2"):
        validated(MTPCConfig, FITTING | {"window": 1}, "it")


def test_a_token_that_is_read_is_not_of_the_circuit() -> None:
    assert validated(CircuitConfig, FITTING, "it").circuit_window == 4
    assert validated(CircuitConfig, FITTING | {"token_input": True}, "it").circuit_window == 3


def test_keys_that_a_checkpoint_leaves_out_mean_what_they_meant() -> None:
    """Checkpoints of before have to load: a default is part of the format."""
    required = {"circuit": "hmm", "window": 4, "rank": 3, "hidden_size": 8, "vocab_size": 11}
    assert validated(CircuitConfig, required, "it").model_dump() == required | {
        "leaves": "shared", "leaf_features": 128, "component_features": 32, "sum_features": 32, "trunk_size": 0,
        "token_input": False,
    }  # fmt: skip
    assert validated(ParallelConfig, {"positions": 5}, "it").model_dump() == {
        "positions": 5, "blocks": 5, "circuit": "ff", "rank": 1, "component_features": 64, "sum_features": 32
    }  # fmt: skip
