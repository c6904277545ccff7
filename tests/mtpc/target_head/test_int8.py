"""int8 linear layers against the bfloat16 layers that they stand for."""

import pytest
import torch
from torch import nn

from mtpc.target_head.int8 import Int8Linear, use_int8_weights


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("sizes", [(32, 32), (384, 1024), (64, 1120)])
@torch.inference_mode()
def test_rounding_moves_each_product_by_half_a_step_at_most(sizes: tuple[int, int], rows: int):
    torch.manual_seed(0)
    linear = nn.Linear(*sizes, bias=False).bfloat16()
    features = torch.randn(rows, sizes[0]).bfloat16()
    found = Int8Linear(linear.weight)(features).double()
    weight = linear.weight.double()
    exact = features.double() @ weight.T
    half_a_step = weight.abs().amax(1) / 127 / 2 * features.double().abs().sum(1, keepdim=True)
    bfloat16 = exact.abs() * 2**-7 + weight.abs().amax(1) * features.double().abs().sum(1, keepdim=True) * 2**-9
    assert found.dtype == torch.float64
    assert (found - exact).abs().le(half_a_step + bfloat16).all()
    assert not torch.equal(found, exact)


def test_weights_are_those_of_the_nearest_step_and_the_largest_is_the_last_step():
    weight = torch.randn(32, 64)
    rounded = Int8Linear(weight).weight
    steps = weight / (weight.abs().amax(1, keepdim=True) / 127)
    assert (rounded - steps).abs().max() <= 0.5 + 1e-4
    assert (rounded.abs().amax(1) == 127).all()


def test_a_row_of_zeros_stays_zero():
    linear = nn.Linear(32, 32, bias=False).bfloat16()
    linear.weight.data[0] = 0
    assert Int8Linear(linear.weight)(torch.ones(1, 32).bfloat16())[0, 0] == 0


def test_every_linear_layer_that_fits_is_replaced_and_no_other():
    inner = nn.Sequential(nn.Linear(64, 30, bias=False), nn.Embedding(32, 32))
    module = nn.Sequential(nn.Linear(32, 64, bias=False), inner, nn.Linear(32, 32))
    use_int8_weights(module)
    kinds = [type(part) for part in module.modules() if not isinstance(part, nn.Sequential)]
    assert kinds == [Int8Linear, nn.Linear, nn.Embedding, nn.Linear]
