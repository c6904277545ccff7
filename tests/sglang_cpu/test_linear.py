"""Packed linear layers against ordinary ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sglang_cpu import linear

SIZES = (24, 40)  # outputs, inputs


class Method:
    """Has the methods of SGLang's class that are wrapped; counts its products."""

    def __init__(self) -> None:
        self.products = 0

    def process_weights_after_loading(self, layer: Any) -> None:
        """Nothing to do."""

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product."""
        self.products += 1
        return F.linear(x, layer.weight, bias)


def wrapped() -> Method:
    """With the wrapped methods."""
    kind = type("Wrapped", (Method,), dict(vars(Method)))
    linear.install(SimpleNamespace(UnquantizedLinearMethod=kind))
    return kind()  # type: ignore[no-any-return]


def layer(dtype: torch.dtype) -> Any:
    """A weight like SGLang's."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(SIZES, generator=generator).to(dtype)
    return SimpleNamespace(weight=torch.nn.Parameter(weight, requires_grad=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 8, 65])
@pytest.mark.parametrize("biased", [True, False])
def test_the_product_is_the_same(dtype: torch.dtype, rows: int, biased: bool) -> None:
    method, one = wrapped(), layer(dtype)
    method.process_weights_after_loading(one)
    x = torch.randn(rows, SIZES[1], generator=torch.Generator().manual_seed(rows)).to(dtype)
    bias = torch.linspace(-1, 1, SIZES[0], dtype=dtype) if biased else None
    torch.testing.assert_close(method.apply(one, x, bias), F.linear(x, one.weight, bias))
    assert (method.products == 0) is linear.fits(one.weight)


def test_loading_again_packs_again() -> None:
    method, one, x = wrapped(), layer(torch.float32), torch.ones(2, SIZES[1])
    method.process_weights_after_loading(one)
    one.weight.mul_(3)
    method.process_weights_after_loading(one)
    torch.testing.assert_close(method.apply(one, x), F.linear(x, one.weight))


def test_what_cannot_be_packed_stays_with_sglang() -> None:
    method, one = wrapped(), layer(torch.float64)
    method.process_weights_after_loading(one)
    method.apply(one, torch.ones(1, SIZES[1]).double())
    other = layer(torch.float32)
    method.process_weights_after_loading(other)
    with pytest.raises(RuntimeError, match="dtype"):
        method.apply(other, torch.ones(1, SIZES[1]).double())
    assert method.products == 2


def test_nothing_is_wrapped_where_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kind = type("Untouched", (Method,), {})
    linear.install(SimpleNamespace(UnquantizedLinearMethod=kind))
    assert kind.apply is Method.apply
