"""Weights and provenance of a drafter checkpoint: ``model.safetensors``, read strictly, and ``provenance.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.json_file import check_file

WEIGHTS = "model.safetensors"


def read_weights(folder: Path, expected: dict[str, Tensor], name: str = WEIGHTS) -> dict[str, Tensor]:
    """Read ``model.safetensors``, or another file like it, and check it against the expected tensors.

    Args:
        folder: The drafter checkpoint.
        expected: Tensors of the right shapes and kinds, by name; their values are ignored.
        name: The file.

    Returns:
        The stored tensors by name, on the CPU.

    Raises:
        MTPCError: The file is missing or damaged, a tensor is missing or unknown, has another shape or type, or has
            values that are not finite.
    """
    path = Path(folder) / name
    check_file(path)
    try:
        stored = load_file(path)
    except (SafetensorError, OSError) as error:
        raise MTPCError(f"{path} is damaged or not a safetensors file: {error}.") from None
    for key in sorted(set(expected) - set(stored)):
        raise MTPCError(f"{path}: the tensor {key!r} is missing.")
    for key in sorted(set(stored) - set(expected)):
        raise MTPCError(f"{path}: the tensor {key!r} is unknown to a drafter of this configuration.")
    for key, tensor in stored.items():
        check_tensor(path, key, tensor, expected[key])
    return stored


def check_tensor(path: Path, name: str, tensor: Tensor, expected: Tensor) -> None:
    """Check the shape, type and values of a tensor.

    Args:
        path: File of the tensor, for an error.
        name: Name of the tensor, for an error.
        tensor: The tensor.
        expected: A tensor of the right shape and kind.

    Raises:
        MTPCError: The shape or type differs, or a value is not finite.
    """
    if tensor.shape != expected.shape:
        shapes = f"{list(tensor.shape)}, but config.json makes it {list(expected.shape)}"
        raise MTPCError(f"{path}: the tensor {name!r} has shape {shapes}.")
    if not expected.is_floating_point():
        if tensor.dtype != expected.dtype:
            raise MTPCError(f"{path}: the tensor {name!r} is of type {tensor.dtype}, not {expected.dtype}.")
        return
    check_type(path, name, tensor)
    if not torch.isfinite(tensor).all():
        raise MTPCError(f"{path}: the tensor {name!r} holds values that are not finite (NaN or infinity).")


def check_type(path: Path, name: str, tensor: Tensor) -> None:
    """Check that a tensor is dense and of a floating-point type of at least 16 bits.

    Args:
        path: File of the tensor, for an error.
        name: Name of the tensor, for an error.
        tensor: The tensor.

    Raises:
        MTPCError: The tensor is sparse, quantized, without values, or of another type.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise MTPCError(f"{path}: the tensor {name!r} is sparse, quantized or without values, but must be dense.")
    if not tensor.is_floating_point() or tensor.itemsize < 2:
        expected_type = "a floating-point type of at least 16 bits"
        raise MTPCError(f"{path}: the tensor {name!r} is of type {tensor.dtype}, but {expected_type} was expected.")


def write_directory(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write a drafter checkpoint: ``config.json``, ``model.safetensors`` and ``provenance.json``.

    Args:
        folder: The folder to write; it is created if necessary.
        config: Contents of ``config.json``.
        weights: Tensors by name; floating-point ones are stored in bfloat16, others as they are.
        facts: Provenance to store.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored = {
        key: tensor.detach().to("cpu", torch.bfloat16 if tensor.is_floating_point() else tensor.dtype).contiguous()
        for key, tensor in weights.items()
    }
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    provenance.write(folder, **facts)
