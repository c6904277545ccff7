"""Adapters of a drafter checkpoint in the files of peft: ``adapter_config.json`` and ``adapter_model.safetensors``.

``peft.PeftModel.from_pretrained(target, folder)`` loads them into the target.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr
from mtpc.files.json_file import read_json
from mtpc.files.weights import read_weights

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Keys that change what the adapters compute, and the values that are read; a missing key has this value in peft.
FIXED: dict[str, Any] = {
    "bias": "none",
    "fan_in_fan_out": False,
    "use_rslora": False,
    "use_dora": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
}


def adapter_config(config: LoRALayersConfig) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``.

    Args:
        config: The adapted layers.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(config.modules),
        "layers_to_transform": list(config.layer_numbers),
        **FIXED,
    }


def write_adapters(folder: Path, config: LoRALayersConfig, tensors: dict[str, Tensor]) -> None:
    """Write both files, with weights in bfloat16.

    Args:
        folder: The drafter checkpoint.
        config: The adapted layers.
        tensors: Adapters by peft's names.
    """
    (folder / CONFIG).write_text(json.dumps(adapter_config(config), indent=2) + "\n")
    stored = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})


def read_adapters(folder: Path, config: LoRALayersConfig, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read both files strictly.

    Args:
        folder: The drafter checkpoint.
        config: The adapted layers, which ``adapter_config.json`` must agree with; other keys of peft are ignored.
        expected: Tensors of the right shapes by peft's names; their values are ignored.

    Returns:
        Adapters by peft's names.

    Raises:
        MTPCError: A file is missing or damaged, or the adapters are not those of the drafter's configuration.
    """
    values = read_json(folder / CONFIG)
    if isinstance(values.get("target_modules"), list):  # peft does not keep their order
        values["target_modules"] = sorted(map(str, values["target_modules"]))
    rules = adapter_config(config)
    rules["target_modules"] = sorted(config.modules)
    for key in ("peft_type", "r", "lora_alpha", "target_modules", "layers_to_transform", *FIXED):
        value = values.get(key, FIXED.get(key))
        if value != rules[key] and not (value is None and key in FIXED):
            raise MTPCError(
                f"{folder / CONFIG}: {key} is {short_repr(value)}, but config.json of this drafter requires "
                f"{short_repr(rules[key])}."
            )
    return read_weights(folder, expected, WEIGHTS)
