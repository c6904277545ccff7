"""Output heads quantized as published checkpoints have them: settings, tensors, and the weight that they stand for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32  # numbers of a row with a scale of their own, of the 4-bit formats
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of the numbers in an int32


class QuantizedHead(NamedTuple):
    """A head of V tokens: ``quantization_config``, tensors by name, and the dequantized weight, float32 [V, d]."""

    settings: dict[str, Any]
    tensors: dict[str, Tensor]
    weight: Tensor


def int8(weight: Tensor) -> QuantizedHead:
    """W8A8 of compressed-tensors: a scale for each row, activations by token."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    rounded = (weight / scale).round().to(torch.int8)
    settings = compressed_tensors("int-quantized", "int")
    return QuantizedHead(settings, {"weight": rounded, "weight_scale": scale}, rounded * scale)


def fp8(weight: Tensor) -> QuantizedHead:
    """The same in E4M3."""
    scale = weight.abs().amax(1, keepdim=True) / 448
    rounded = (weight / scale).to(torch.float8_e4m3fn)
    settings = compressed_tensors("float-quantized", "float")
    return QuantizedHead(settings, {"weight": rounded, "weight_scale": scale}, rounded.float() * scale)


def gptq(weight: Tensor) -> QuantizedHead:
    """Four bits, symmetric; eight numbers of a column in an int32."""
    grouped = weight.unflatten(1, (-1, GROUP))  # [V, d / GROUP, GROUP]
    scale = (grouped.abs().amax(2) / 7).half()  # [V, d / GROUP]
    codes = (grouped / scale[..., None]).round().clamp(-8, 7).flatten(1).int() + 8  # [V, d]
    tensors = {
        "qweight": packed(codes.T.unflatten(0, (-1, 8)), 1),
        "qzeros": torch.full((scale.shape[1], len(weight) // 8), 0x77777777, dtype=torch.int32),
        "scales": scale.T.contiguous(),
        "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }
    settings = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "desc_act": False,
        "sym": True,
        "lm_head": True,
        "dynamic": {"-:.*_proj.*": {}},
    }
    return QuantizedHead(settings, tensors, (codes - 8) * scale.float().repeat_interleave(GROUP, 1))


def awq(weight: Tensor) -> QuantizedHead:
    """Four bits with zero points; eight numbers of a row in an int32, in an order of its own."""
    grouped = weight.unflatten(1, (-1, GROUP))
    low, high = grouped.amin(2), grouped.amax(2)
    scale = ((high - low) / 15).half()
    zero = (-low / scale).round().clamp(0, 15).int()  # [V, d / GROUP]
    codes = ((grouped / scale[..., None]).round() + zero[..., None]).clamp(0, 15).flatten(1).int()
    order = list(AWQ_ORDER)
    tensors = {
        "qweight": packed(codes.T.unflatten(1, (-1, 8))[..., order], 2),
        "qzeros": packed(zero.T.unflatten(1, (-1, 8))[..., order], 2),
        "scales": scale.T.contiguous(),
    }
    settings = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
        "lm_head": True,
        "modules_to_not_convert": ["self_attn", "mlp"],
    }
    centered = codes - zero.repeat_interleave(GROUP, 1)
    return QuantizedHead(settings, tensors, centered * scale.float().repeat_interleave(GROUP, 1))


FORMATS: dict[str, Callable[[Tensor], QuantizedHead]] = {"int8": int8, "fp8": fp8, "gptq": gptq, "awq": awq}


def compressed_tensors(layout: str, of: str) -> dict[str, Any]:
    """Settings of 8-bit weights by row and 8-bit activations by token, for the head alone."""
    numbers = {"num_bits": 8, "type": of, "symmetric": True}
    group = {
        "targets": ["re:.*lm_head"],
        "weights": {**numbers, "strategy": "channel", "dynamic": False},
        "input_activations": {**numbers, "strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["re:.*_proj"],
    }


def packed(codes: Tensor, dim: int) -> Tensor:
    """Eight numbers of four bits along a dimension as an int32."""
    shape = [1] * codes.ndim
    shape[dim] = 8
    shifted = codes.long() << (4 * torch.arange(8)).view(shape)
    return shifted.sum(dim).to(torch.int32).contiguous()


def quantize_head(target: Path, plain: Path, made: Callable[[Tensor], QuantizedHead]) -> None:
    """Quantize the head of a checkpoint in place; ``plain`` becomes the same with the dequantized head."""
    tensors, config = load_file(target / "model.safetensors"), json.loads((target / "config.json").read_text())
    head = made(tensors.pop("lm_head.weight").float())
    shutil.copytree(target, plain)
    save_file({**tensors, "lm_head.weight": head.weight}, plain / "model.safetensors", metadata={"format": "pt"})
    tensors |= {f"lm_head.{name}": tensor for name, tensor in head.tensors.items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps({**config, "quantization_config": head.settings}))
