"""The kinds of draft layers, and which numbers of tensor-parallel ranks can share one."""

from __future__ import annotations

from typing import get_args

import pytest

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.autoregressive.kinds import LAYER_TYPES, LayerType
from mtpc.autoregressive.layer import LAYER_CLASSES
from mtpc.errors import MTPCError
from tests.support.tiny_models import KINDS


def test_every_kind_is_implemented_tested_and_that_of_a_target() -> None:
    assert set(get_args(LayerType)) == set(LAYER_TYPES.values()) == set(LAYER_CLASSES) == set(KINDS)


def config(heads: int, keys: int, intermediate: int) -> AutoregressiveConfig:
    """Of a layer with these sizes."""
    return AutoregressiveConfig(
        layer="llama",
        hidden_size=64,
        vocab_size=258,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        head_dim=16,
        attention_bias=False,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        max_position_embeddings=512,
    )


@pytest.mark.parametrize("sizes", [(4, 2, 128), (4, 1, 128), (8, 8, 96), (2, 2, 2)])
def test_ranks_share_evenly_or_have_the_same_keys(sizes: tuple[int, int, int]) -> None:
    config(*sizes).check_ranks(1, "drafter")
    config(*sizes).check_ranks(2, "drafter")


@pytest.mark.parametrize("sizes", [(3, 3, 128), (4, 2, 127), (6, 3, 128)], ids=["heads", "intermediate", "keys"])
def test_what_ranks_cannot_share_is_one_sentence(sizes: tuple[int, int, int]) -> None:
    heads, keys, intermediate = sizes
    sentence = (
        f"drafter has {heads} attention heads, {keys} key-value heads and an intermediate_size of {intermediate}, "
        "which 2 tensor-parallel ranks cannot split evenly."
    )
    with pytest.raises(MTPCError) as caught:
        config(*sizes).check_ranks(2, "drafter")
    assert str(caught.value) == sentence
