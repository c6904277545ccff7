"""All tensors of a file of safetensors or of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from mtpc.errors import MTPCError, first_line
from mtpc.files.json_file import check_file
from mtpc.files.weights import check_type


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file without executing code in it.

    Args:
        path: A file of safetensors, named so, or one of torch.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        MTPCError: The file is missing or damaged, or holds anything but tensors of numbers.
    """
    loaded = read_values(path)
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise MTPCError(f"{path} holds something else than tensors by name; expected a state_dict.")
    for name, tensor in loaded.items():
        check_type(path, str(name), tensor)
    return {str(name): tensor for name, tensor in loaded.items()}


def read_values(path: Path, *, mapped: bool = False) -> Any:
    """Read what a file of tensors holds without executing code in it.

    Args:
        path: A file of safetensors, named so, or one of torch.
        mapped: Whether tensors of a torch file are read from disk only when they are used.

    Returns:
        Tensors on the CPU, and plain values, in the nesting of the file.

    Raises:
        MTPCError: The file is missing or damaged, or holds other objects.
    """
    check_file(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises any exception for a damaged file
        raise MTPCError(f"{path} cannot be read as a file of tensors: {first_line(error)}.") from None
