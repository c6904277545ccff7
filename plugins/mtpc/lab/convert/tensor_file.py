"""All tensors of a file of safetensors or of torch."""

from __future__ import annotations

from pathlib import Path

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
    check_file(path)
    try:
        if path.suffix == ".safetensors":
            loaded = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises any exception for a damaged file
        raise MTPCError(f"{path} cannot be read as a file of tensors: {first_line(error)}.") from None
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise MTPCError(f"{path} holds something else than tensors by name; expected a state_dict.")
    for name, tensor in loaded.items():
        check_type(path, str(name), tensor)
    return {str(name): tensor for name, tensor in loaded.items()}
