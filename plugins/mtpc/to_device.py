"""What the host knows, sent to a device that goes on with what it is doing."""

from __future__ import annotations

import torch
from torch import Tensor


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host's on a device; from memory that is not pinned a GPU copies once it has done all before."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
