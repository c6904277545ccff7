"""Untrained drafters of the draft methods in tests/support/hybrid for the random targets, made in a second."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.autoregressive.config import layer_of
from mtpc.lab.training.initialization import start_from_target
from mtpc.methods import DraftMethod, draft_methods
from mtpc.methods.drafter import Drafter, save_drafter

FOLDER = Path(__file__).parent / "hybrid"  # on the PYTHONPATH of processes that are to know the draft methods
NOISE = 0.3  # of a tensor's mean size: enough for every weight to matter, too little to be always wrong
CIRCUIT = {"circuit": "hmm", "window": 4, "rank": 3, "leaves": "table", "sum_features": 0}


def register_method(folder: Path = FOLDER) -> None:
    """Make the draft methods of a folder known in this process."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        draft_methods.cache_clear()


def forget_method(folder: Path = FOLDER) -> None:
    """Undo `register_method`."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
        draft_methods.cache_clear()


def method(name: str) -> DraftMethod:
    """One of them by its name."""
    register_method()
    return next(method for method in draft_methods() if method.name == name)


def make_hybrid(folder: Path, target: Path, seed: int = 1, name: str = "hybrid", **keys: Any) -> Path:
    """A drafter of up to four drafts that is now and then right; keys: others of its section."""
    torch.manual_seed(seed)
    model, kind = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32), method(name)
    drafter = Drafter(kind, kind.config(**layer_of(model.config), circuit=CIRCUIT, **keys))
    start_from_target(drafter.autoregressive, model)
    unembedding = model.get_output_embeddings().weight.detach()
    with torch.no_grad():
        for weight in drafter.autoregressive.parameters():
            weight.add_(noise_of(weight))
        drafter.parallel.head.initialize(unembedding)
        for weight in drafter.parallel.head.leaves.parameters():  # [n, R, V, d]: the target's own head, and noise
            weight.copy_(unembedding + unembedding.std() * torch.randn_like(weight) / 2)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_between(folder: Path, target: Path) -> Path:
    """The same from the state below the target's layer 1."""
    return make_hybrid(folder, target, name="between", below=1)


def make_subset(folder: Path, target: Path) -> Path:
    """Layers and parallel heads that draft every second of the target's tokens, and are now and then right."""
    torch.manual_seed(1)
    model, kind = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32), method("subset")
    tokens = torch.arange(0, model.config.vocab_size, 2)
    config = kind.config(**layer_of(model.config), parallel={"positions": 3, "blocks": 1}, tokens=len(tokens))
    drafter = Drafter(kind, config)
    start_from_target(drafter.autoregressive, model)
    drafter.parallel.initialize(model.model.norm.weight)
    own = drafter.autoregressive.own
    with torch.no_grad():
        own.embedding.weight.copy_(model.get_input_embeddings().weight)
        own.rows.copy_(model.get_output_embeddings().weight[tokens])
        own.tokens.copy_(tokens)
        for weight in drafter.parameters():
            weight.add_(noise_of(weight))
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def noise_of(weight: Tensor) -> Tensor:
    """What a weight of the target's is changed by."""
    return torch.randn_like(weight) * weight.abs().mean() * NOISE
