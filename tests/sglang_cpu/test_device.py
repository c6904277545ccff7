"""What schedulers in Ray's actors do with a device that is none of CUDA's."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from sglang_cpu import device


def refuse(device: int) -> None:
    """As torch does without CUDA."""
    raise AssertionError("Torch not compiled with CUDA enabled")


def test_the_device_of_an_actor_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    device.install(ModuleType("scheduler"))
    torch.cuda.set_device(1)
