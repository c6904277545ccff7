"""A wider model starts with the narrow one's outputs; other shapes are refused with the reason."""

import dataclasses

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.targets.widening import widen_mlps
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig

NARROW = ByteTargetConfig(hidden_size=64, layers=2, heads=2, kv_heads=1, mlp_size=48, context=64)
WIDE = dataclasses.replace(NARROW, mlp_size=96)


def test_logits_are_equal_and_new_units_learn():
    torch.manual_seed(0)
    narrow, wide = build_byte_llama(NARROW), build_byte_llama(WIDE)
    widen_mlps(narrow, wide)
    tokens = torch.randint(256, (2, 20))
    torch.testing.assert_close(wide(input_ids=tokens).logits, narrow(input_ids=tokens).logits)
    wide(input_ids=tokens, labels=tokens).loss.backward()
    assert wide.model.layers[0].mlp.down_proj.weight.grad[:, 48:].abs().min() > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"mlp_size": 32}, "already wider"),
        ({"hidden_size": 32}, "only the width of the MLPs may differ"),
        ({"layers": 1}, "only the width of the MLPs may differ"),
        ({"layers": 3}, "widening adds none"),
    ],
)
def test_other_shapes_are_refused(change: dict[str, int], expected: str):
    narrow, wide = build_byte_llama(NARROW), build_byte_llama(dataclasses.replace(WIDE, **change))
    with pytest.raises(MTPCError, match=f"(?i){expected}"):
        widen_mlps(narrow, wide)
