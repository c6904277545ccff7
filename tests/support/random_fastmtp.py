"""Untrained FastMTP drafters and draft vocabularies for the random targets, made in a second."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from mtpc.lab.training.initialization import start_from_target
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.fastmtp import FastMTP, config_for
from mtpc.vocabulary.ranking import Ranking, Rankings

NOISE = 0.3  # of a tensor's mean size: enough for every weight to matter, too little to be always wrong
SIZE = 0.02  # of what training starts from zero
END = 256  # the byte tokenizer's end of text


def make_fastmtp(folder: Path, target: Path, seed: int = 1) -> Path:
    """A drafter of three steps that is now and then right."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    drafter = Drafter(FastMTP(), config_for(model.config, 3))
    layer = drafter.autoregressive
    assert layer is not None
    start_from_target(layer, model)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.add_(torch.randn_like(weight) * (weight.abs().mean() or SIZE) * NOISE)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_vocabulary(path: Path, vocab_size: int) -> Path:
    """Rankings of two languages that bytes tell apart: text in small letters and text in capitals."""
    order = b" etaoinshrdlucmfwypvbgkjqxz"
    languages = {
        "letters": Ranking((*order, *range(32))),
        "capitals": Ranking((*order.upper(), *range(128, 256))),
    }
    Rankings(vocab_size, languages, always=(END,)).save(path, {"purpose": "tests"})
    return path
