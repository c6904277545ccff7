"""A tiny drafter of every draft method for one tiny target, now and then right: for what holds of all of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.config import layer_of
from mtpc.autoregressive.lora import lora_of
from mtpc.lab.training.initialization import start_from_target
from mtpc.methods import draft_methods
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import ParallelConfig
from mtpc.parallel.independent import IndependentPart
from mtpc.parallel.medusa_part import MedusaPart
from tests.support.random_hybrid import register_method
from tests.support.tiny_models import SIZE, VOCAB

NOISE = 0.3  # of a tensor's mean size
CIRCUIT: dict[str, Any] = {"circuit": "hmm", "window": 4, "rank": 3, "leaves": "table", "sum_features": 0}
PARALLEL: dict[str, Any] = {"positions": 2, "blocks": 1, "circuit": "hmm", "rank": 2}
NAMES = ("mtpc", "fastmtp", "gumiho", "medusa", "hybrid", "subset")
LORA = "mtpc, LoRA"  # MTPC with adapters of the target's last layer
SCORED = (*NAMES, LORA)


def config_of(name: str, model: PreTrainedModel) -> dict[str, Any]:
    """The keys of a drafter's section."""
    return {
        "mtpc": {**CIRCUIT, "hidden_size": SIZE, "vocab_size": VOCAB},
        LORA: {**CIRCUIT, "hidden_size": SIZE, "vocab_size": VOCAB, "lora": lora_of(model.config, 1, 3)},
        "fastmtp": {**layer_of(model.config), "num_drafts": 3},
        "gumiho": {**layer_of(model.config), "num_hidden_layers": 2, "parallel": ParallelConfig(**PARALLEL)},
        "medusa": {"heads": 3, "hidden_size": SIZE, "vocab_size": VOCAB},
        "subset": {**layer_of(model.config), "parallel": ParallelConfig(**PARALLEL), "tokens": VOCAB // 2},
        "hybrid": {**layer_of(model.config), "circuit": CIRCUIT},
    }[name]


@torch.no_grad()
def tiny_drafter(name: str, model: PreTrainedModel, noise: float = NOISE) -> Drafter:
    """It starts as training would start it, with noise on everything."""
    register_method()
    torch.manual_seed(1)
    method = next(method for method in draft_methods() if method.name == name.partition(",")[0])
    drafter = Drafter(method, method.config(**config_of(name, model)))
    if isinstance(drafter.autoregressive, AdaptedLayers):
        drafter.autoregressive.bind(model)
        for weight in drafter.autoregressive.parameters():
            weight.normal_(0, noise)
    elif drafter.autoregressive is not None:
        start_from_target(drafter.autoregressive, model)
    if isinstance(drafter.parallel, CircuitPart):
        unembedding = model.get_output_embeddings().weight
        drafter.parallel.head.initialize(unembedding)
        for (
            weight
        ) in drafter.parallel.head.leaves.parameters():  # [n, R, V, d]: the target's own head at every position
            weight.copy_(unembedding)
    if isinstance(drafter.parallel, MedusaPart):
        for layer in drafter.parallel.layers:
            layer.initialize(0.5)
        for output in drafter.parallel.outputs:
            output.weight.copy_(model.get_output_embeddings().weight)
    if isinstance(drafter.parallel, IndependentPart):
        drafter.parallel.initialize(model.model.norm.weight)
    if drafter.autoregressive is not None and drafter.autoregressive.own is not None:
        drafter.autoregressive.own.embedding.weight.copy_(model.get_input_embeddings().weight)
        drafter.autoregressive.own.rows.copy_(model.get_output_embeddings().weight[: VOCAB // 2])
    for weight in drafter.parameters():
        weight.add_(torch.randn_like(weight) * weight.abs().mean() * noise)
    return drafter.requires_grad_(False).eval()
