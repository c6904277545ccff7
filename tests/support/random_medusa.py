"""Medusa heads with random weights for the random targets, in the layouts in which heads are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.lab.convert.medusa import convert_medusa

Layout = Literal["pt", "safetensors", "shared", "vllm"]
HEADS, LAYERS = 5, 1
# As FasterDecoding/medusa-vicuna-7b-v1.3 has it, whose file holds five heads.
PUBLISHED = {
    "base_model_name_or_path": "lmsys/vicuna-7b-v1.3",
    "medusa_num_heads": 2,
    "medusa_num_layers": LAYERS,
    "transformers_version": "4.31.0",
}
VLLM = {
    "architectures": ["MedusaModel"],
    "hidden_size": 0,
    "max_paths": 64,
    "max_seq_len": 1 << 20,
    "model_type": "medusa",
    "num_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "topk": 10,
    "transformers_version": "4.41.2",
    "truncated_vocab_size": 0,
    "vocab_size": 0,
}


def publish(folder: Path, output: Tensor, layout: Layout = "pt", layers: int = LAYERS) -> dict[str, Tensor]:
    """Write heads in float16, now and then right; return them by their names in Medusa's own layout.

    output: [V, d], the target's output head.
    """
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    vocab, size = output.shape
    tensors = {}
    for head in range(HEADS):
        for layer in range(layers):
            tensors[f"{head}.{layer}.linear.weight"] = random(size, size) * 0.3 * size**-0.5
            tensors[f"{head}.{layer}.linear.bias"] = random(size) * 0.1
        if layout != "shared":
            tensors[f"{head}.{layers}.weight"] = output + output.std() * random(vocab, size) / 2
    tensors = {name: tensor.half() for name, tensor in tensors.items()}
    config = PUBLISHED | {"medusa_num_layers": layers}
    folder.mkdir(parents=True)
    if layout == "pt":
        torch.save(tensors, folder / "medusa_lm_head.pt")
    elif layout == "vllm":
        sizes = {"hidden_size": size, "vocab_size": vocab, "truncated_vocab_size": vocab, "num_hidden_layers": layers}
        config = VLLM | sizes
        save_file({vllm_name(name): tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    else:
        config |= {"version": "2"} if layout == "shared" else {}
        save_file(tensors, folder / "medusa_lm_head.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def vllm_name(name: str) -> str:
    """The name of a tensor in vLLM's layout."""
    head, layer, *rest = name.split(".")
    return f"blocks.{head}.layers.{layer}.{rest[-1]}" if rest[0] == "linear" else f"lm_heads.{head}.weight"


def make_medusa(folder: Path, target: Path, layout: Layout = "pt") -> Path:
    """A drafter for ``target``: random heads in a published layout, converted."""
    output = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).get_output_embeddings().weight.detach()
    published = folder.with_name(f"{folder.name}-published")
    publish(published, output, layout)
    convert_medusa(published, target, folder)
    return folder
