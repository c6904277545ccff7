"""What is sent to a device does not wait for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.to_device import copy_to_device


@pytest.mark.parametrize(("device", "pins"), [("cuda", True), ("cpu", False), ("meta", False)])
def test_a_gpu_is_sent_pinned_memory(device: str, pins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: did.append("pinned") or self)
    monkeypatch.setattr(Tensor, "to", lambda self, to, non_blocking: did.append((to.type, non_blocking)))
    copy_to_device(torch.tensor([1]), torch.device(device))
    assert did == [*["pinned"] * pins, (device, True)]
