"""Untrained Gumiho drafters for the random targets, made in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from mtpc.lab.training.initialization import start_from_target
from mtpc.lab.training.recipes.gumiho_recipe import config_for
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.gumiho import Gumiho
from mtpc.parallel.independent import IndependentPart

NOISE = 0.3  # of a tensor's mean size: enough for every weight to matter, too little to be always wrong


def make_gumiho(folder: Path, target: Path, parallel: dict[str, Any] | None, **options: Any) -> Path:
    """A drafter whose autoregressive part is now and then right.

    parallel: keys of its heads.  options: other keys of its configuration.
    """
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    drafter = Drafter(Gumiho(), config_for(model.config, parallel, **options))
    assert drafter.autoregressive is not None
    start_from_target(drafter.autoregressive, model)
    if isinstance(drafter.parallel, IndependentPart):
        drafter.parallel.initialize(model.model.norm.weight)
    with torch.no_grad():
        for weight in drafter.parameters():
            weight.add_(torch.randn_like(weight) * weight.abs().mean() * NOISE)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder
