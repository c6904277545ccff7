"""The precision of a training follows the measured speed of products."""

from __future__ import annotations

import pytest
import torch

from mtpc.lab.training import precision
from mtpc.lab.training.precision import training_dtype


@pytest.mark.parametrize(("bfloat16", "expected"), [(0.25, torch.bfloat16), (0.8, torch.float32), (2.0, torch.float32)])
def test_training_uses_bfloat16_where_products_are_clearly_faster(
    bfloat16: float, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Matrix:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def __matmul__(self, other: Matrix) -> None:
            nonlocal now
            now += self.seconds

    speeds = {torch.float32: 1.0, torch.bfloat16: bfloat16}
    precision._cpu_prefers_bfloat16.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(precision.time, "perf_counter", lambda: now)
        patched.setattr(precision.torch, "ones", lambda *sizes, dtype, device: Matrix(speeds[dtype]))
        assert training_dtype("cpu") == expected
    assert training_dtype("cuda") == torch.bfloat16
    precision._cpu_prefers_bfloat16.cache_clear()
