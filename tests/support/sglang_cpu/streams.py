"""SGLang 0.5.21 tells a tensor on a CPU which stream uses it, where steps overlap: it means nothing there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def install(module: ModuleType) -> None:
    """Let `Tensor.record_stream` pass on a CPU, where torch refuses it; module: SGLang's ``overlap_utils``."""
    original = Tensor.record_stream

    def record_stream(self: Tensor, stream: Any) -> None:
        if self.device.type != "cpu":
            original(self, stream)

    torch.Tensor.record_stream = record_stream  # type: ignore[method-assign, assignment]
