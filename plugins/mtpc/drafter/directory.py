"""Drafter directories on disk: config.json, model.safetensors, provenance.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc import provenance
from mtpc.drafter.config import config_to_json, read_config
from mtpc.drafter.drafter import Drafter
from mtpc.errors import MTPCError

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Target:
    """What a drafter must fit of the target that is served."""

    hidden_size: int
    vocab_size: int


class Fitted(Protocol):
    """A configuration that says what target it is for."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...


def check_target(folder: Path, config: Fitted, target: Target) -> None:
    """Errors: `MTPCError` when the drafter was made for another hidden size or vocabulary."""
    for name in ("hidden_size", "vocab_size"):
        found, expected = getattr(config, name), getattr(target, name)
        if found != expected:
            raise MTPCError(f"{folder} was trained for a target with {name} {found}, but the target has {expected}.")


def read_weights(folder: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of ``model.safetensors``, checked against the keys and shapes of ``expected``.

    Errors: `MTPCError` for a file that is missing or damaged, a key that is missing or unknown, a wrong
    shape or type, or a value that is not finite.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise MTPCError(f"{path} is missing.")
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise MTPCError(f"{path} is damaged or not a safetensors file: {error}.") from None
    for key in sorted(set(expected) - set(found)):
        raise MTPCError(f"{path}: the tensor {key!r} is missing.")
    for key in sorted(set(found) - set(expected)):
        raise MTPCError(f"{path}: the tensor {key!r} is unknown to a drafter of this configuration.")
    for key, tensor in found.items():
        check_tensor(path, key, tensor, expected[key])
    return found


def check_tensor(path: Path, name: str, tensor: Tensor, expected: Tensor) -> None:
    """Errors: `MTPCError` for another shape, another kind of number, or a value that is not finite."""
    if tensor.shape != expected.shape:
        shapes = f"{list(tensor.shape)}, but config.json makes it {list(expected.shape)}"
        raise MTPCError(f"{path}: the tensor {name!r} has shape {shapes}.")
    if not tensor.is_floating_point() or tensor.itemsize < 2:
        expected_type = "a floating-point type of at least 16 bits"
        raise MTPCError(f"{path}: the tensor {name!r} is of type {tensor.dtype}, but {expected_type} was expected.")
    if not torch.isfinite(tensor).all():
        raise MTPCError(f"{path}: the tensor {name!r} holds values that are not finite (NaN or infinity).")


def load_drafter(
    folder: Path | str,
    target: Target | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Drafter:
    """Read a drafter directory strictly; ``target``, where given, must fit.

    Errors: `MTPCError` (see `read_config`, `check_target`, `read_weights`).
    """
    folder = Path(folder)
    config = read_config(folder)
    if target is not None:
        check_target(folder, config, target)
    with torch.device("meta"):
        shapes = Drafter(config)
    weights = read_weights(folder, shapes.state_dict())
    drafter = Drafter(config)
    drafter.load_state_dict(weights)
    return drafter.to(device=device, dtype=dtype).requires_grad_(False).eval()


def save_drafter(folder: Path, drafter: Drafter, facts: dict[str, Any]) -> None:
    """Write a drafter directory, weights in bfloat16; ``facts`` go into provenance.json."""
    write_directory(folder, config_to_json(drafter.config), drafter.state_dict(), facts)


def write_directory(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """config.json, the weights in bfloat16, and provenance.json with ``facts``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored = {key: tensor.detach().to("cpu", torch.bfloat16).contiguous() for key, tensor in weights.items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    provenance.write(folder, **facts)
