"""Checkpoints with drafters of the engines' own, random weights, in the layouts in which such are published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from mtpc.lab.training.recipes.gumiho_recipe import config_for
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.gumiho import Gumiho

NOISE = 0.1  # of a tensor's mean size: enough to be wrong now and then


def make_eagle(folder: Path, target: Path, sglang: bool = False) -> Path:
    """An EAGLE layer for a Llama: the target's last layer, which reads embeddings and states with equal weight.

    sglang: as that engine names such a layer, whose projection adds a bias there.
    """
    config, weights = _read(target)
    last, size = f"model.layers.{config['num_hidden_layers'] - 1}.", config["hidden_size"]
    layer = {name.removeprefix(last): _noisy(tensor) for name, tensor in weights.items() if name.startswith(last)}
    del layer["input_layernorm.weight"]
    tensors = {f"layers.0.{name}": tensor for name, tensor in layer.items()}
    tensors["fc.weight"] = torch.eye(size).repeat(1, 2) / 2
    config = {**config, "num_hidden_layers": 1}
    if sglang:
        config["architectures"] = ["LlamaForCausalLMEagle"]
        tensors["fc.bias"] = torch.zeros(size)
    return _write(folder, config, tensors)


def make_gumiho_of(folder: Path, eagle: Path, target: Path) -> Path:
    """The drafter of this project that computes what an EAGLE layer of `make_eagle` for SGLang does."""
    config, tensors = AutoConfig.from_pretrained(target), load_file(eagle / "model.safetensors")
    drafter = Drafter(Gumiho(), config_for(config, None, num_hidden_layers=1, normed=False))
    assert drafter.autoregressive is not None
    names = {"fc": "input_proj", "layers": "blocks"}  # the halves of `fc` are equal
    named = {".".join([names[name.split(".")[0]], *name.split(".")[1:]]): each for name, each in tensors.items()}
    drafter.autoregressive.load_state_dict(named)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_eagle3(folder: Path, target: Path, layers: Sequence[int], tokens: Sequence[int]) -> Path:
    """An EAGLE-3 layer for a Llama: the target's last layer, which reads the mean of the states before ``layers``.

    tokens: those that it drafts, ascending, with output head rows of its own.
    """
    config, weights = _read(target)
    last, size = f"model.layers.{config['num_hidden_layers'] - 1}.", config["hidden_size"]
    layer = {name.removeprefix(last): _noisy(tensor) for name, tensor in weights.items() if name.startswith(last)}
    for name in ("q", "k", "v"):  # of embeddings and states
        layer[f"self_attn.{name}_proj.weight"] = layer[f"self_attn.{name}_proj.weight"].repeat(1, 2) / 2
    layer["hidden_norm.weight"] = layer["input_layernorm.weight"].clone()
    tensors = {f"midlayer.{name}": tensor for name, tensor in layer.items()}
    tensors["fc.weight"] = torch.eye(size).repeat(1, len(layers)) / len(layers)
    tensors["norm.weight"] = weights["model.norm.weight"]
    chosen = torch.tensor([*tokens])
    tensors["lm_head.weight"] = weights["lm_head.weight"][chosen].contiguous()
    tensors["d2t"] = chosen - torch.arange(len(tokens))
    tensors["t2d"] = torch.isin(torch.arange(config["vocab_size"]), chosen)
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": len(tokens)}
    config["tie_word_embeddings"] = False
    config["eagle_aux_hidden_state_layer_ids"] = [*layers]
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [*layers], "use_aux_hidden_state": True}
    return _write(folder, config, tensors)


def make_draft_model(folder: Path, target: Path) -> Path:
    """The target with noise."""
    config, weights = _read(target)
    shutil.copytree(target, folder)
    return _write(folder, config, {name: _noisy(tensor) for name, tensor in weights.items()})


def _read(target: Path) -> tuple[dict, dict[str, Tensor]]:  # type: ignore[type-arg]
    torch.manual_seed(5)
    return json.loads((target / "config.json").read_text()), load_file(target / "model.safetensors")


def _noisy(tensor: Tensor) -> Tensor:
    return tensor + torch.randn_like(tensor) * tensor.abs().mean() * NOISE


def _write(folder: Path, config: dict, tensors: dict[str, Tensor]) -> Path:  # type: ignore[type-arg]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
