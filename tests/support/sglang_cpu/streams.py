"""No-op `Tensor.record_stream` on a CPU: SGLang 0.5.21 calls it with overlapping steps."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def install(module: ModuleType) -> None:
    """Let `Tensor.record_stream` do nothing on a CPU, where torch raises; ``module`` is SGLang's ``overlap_utils``."""
    original = Tensor.record_stream

    def record_stream(self: Tensor, stream: Any) -> None:
        if self.device.type != "cpu":
            original(self, stream)

    torch.Tensor.record_stream = record_stream  # type: ignore[method-assign, assignment]
