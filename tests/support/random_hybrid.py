"""Untrained drafters of the third family (tests/support/hybrid) for the random targets, made in a second."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from mtpc.autoregressive.config import layer_of
from mtpc.lab.training.start import start_from_target
from mtpc.methods import families
from mtpc.methods.drafter import Drafter, save_drafter

FOLDER = Path(__file__).parent / "hybrid"  # on the PYTHONPATH of processes that are to know the family
NOISE = 0.3  # of a tensor's mean size: enough for every weight to matter, too little to be always wrong
CIRCUIT = {"circuit": "hmm", "window": 4, "rank": 3, "leaves": "table", "sum_features": 0}


def know_the_family() -> None:
    """Make the family known in this process."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
        families.cache_clear()


def forget_the_family() -> None:
    """Undo `know_the_family`."""
    if str(FOLDER) in sys.path:
        sys.path.remove(str(FOLDER))
        families.cache_clear()


def make_hybrid(folder: Path, target: Path, seed: int = 1) -> Path:
    """A drafter of up to four drafts that is now and then right."""
    know_the_family()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    family = next(family for family in families() if family.name == "hybrid")
    drafter = Drafter(family, family.config(**layer_of(model.config), circuit=CIRCUIT))
    start_from_target(drafter.serial, model)
    unembedding = model.get_output_embeddings().weight.detach()
    with torch.no_grad():
        for weight in drafter.serial.parameters():
            weight.add_(torch.randn_like(weight) * weight.abs().mean() * NOISE)
        drafter.window.head.initialise(unembedding)
        for weight in drafter.window.head.leaves.parameters():  # [n, R, V, d]: the target's own head, and noise
            weight.copy_(unembedding + unembedding.std() * torch.randn_like(weight) / 2)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder
