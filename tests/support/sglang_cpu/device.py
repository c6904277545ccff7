"""No-op `torch.cuda.set_device` on a CPU: SGLang calls it on any device where Ray's actors run its schedulers."""

from __future__ import annotations

from types import ModuleType

import torch


def install(module: ModuleType) -> None:
    """Let `torch.cuda.set_device` do nothing; ``module`` is SGLang's ``scheduler``."""
    torch.cuda.set_device = lambda device: None
