"""Asynchronous copies from the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to a device without waiting for the device.

    On CUDA the tensor is pinned first: from pageable memory the copy would wait for all earlier work.

    Args:
        tensor: On the CPU.
        device: Where to copy it.

    Returns:
        The tensor on the device.
    """
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
