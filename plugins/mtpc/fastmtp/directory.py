"""FastMTP drafter directories on disk: config.json, model.safetensors with a checkpoint's names, provenance.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mtpc.drafter.directory import Target, check_target, read_weights, write_directory
from mtpc.fastmtp.config import config_to_json, read_config
from mtpc.fastmtp.layer import MTPLayer


def load_layer(
    folder: Path | str,
    target: Target | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> MTPLayer:
    """Read a FastMTP drafter directory strictly; ``target``, where given, must fit.

    Errors: `MTPCError` (see `mtpc.fastmtp.config.read_config` and `mtpc.drafter.directory`).
    """
    folder = Path(folder)
    config = read_config(folder)
    if target is not None:
        check_target(folder, config, target)
    with torch.device("meta"):
        shapes = MTPLayer(config).checkpoint()
    weights = read_weights(folder, shapes)
    layer = MTPLayer(config)
    layer.load_checkpoint(weights)
    return layer.to(device=device, dtype=dtype).requires_grad_(False).eval()


def save_layer(folder: Path, layer: MTPLayer, facts: dict[str, Any]) -> None:
    """Write a FastMTP drafter directory, weights in bfloat16; ``facts`` go into provenance.json."""
    write_directory(folder, config_to_json(layer.config), layer.checkpoint(), facts)
