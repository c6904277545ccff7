"""Circuits behind the target's last layers with LoRA adapters: untrained, or trained without the adapters."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.config import layer_of
from mtpc.autoregressive.lora import LoRALayersConfig, lora_of
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.circuit_part import CircuitPart

NOISE = 0.03  # of an adapter, added to its zero B: the state is another, and drafts are now and then right


def make_lora(folder: Path, target: Path, circuit: str = "hmm", layers: int = 1) -> Path:
    """A drafter of up to five drafts whose adapters matter."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    keys = {"num_hidden_layers": layers, "target_layers": model.config.num_hidden_layers}
    lora = LoRALayersConfig.model_validate({**layer_of(model.config), **keys, "rank": 4, "alpha": 8.0})
    config = MTPCConfig(
        circuit=circuit,
        window=6,
        rank=1 if circuit == "ff" else 3,
        hidden_size=model.config.hidden_size,
        vocab_size=model.config.vocab_size,
        leaves="table",
        sum_features=0,
        trunk_size=0,
        lora=lora,
    )
    drafter = Drafter(MTPC(), config)
    assert isinstance(drafter.parallel, CircuitPart)
    assert isinstance(drafter.autoregressive, AdaptedLayers)
    unembedding = model.get_output_embeddings().weight.detach()
    drafter.parallel.head.initialize(unembedding)
    with torch.no_grad():
        for name, weight in drafter.autoregressive.named_parameters():
            if "lora_B" in name:  # A has variance 1 / (3 inputs), as peft makes it
                weight.normal_(0, NOISE)
        for weight in drafter.parallel.head.leaves.parameters():  # [n, R, V, d]: the target's own head, and noise
            weight.copy_(unembedding + unembedding.std() * torch.randn_like(weight) / 2)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_adapted(folder: Path, target: Path, trained: Path, layers: int = 2) -> Path:
    """A trained circuit that reads a slightly other state than in training: its drafts are often right."""
    torch.manual_seed(1)
    lora = LoRALayersConfig.model_validate(lora_of(AutoConfig.from_pretrained(target), layers, 4))
    start = load_drafter(trained)
    drafter = Drafter(MTPC(), start.config.model_copy(update={"lora": lora}))
    drafter.load_state_dict(start.state_dict(), strict=False)
    with torch.no_grad():
        for name, weight in drafter.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, NOISE)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder
