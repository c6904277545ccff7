"""Untrained FastMTP drafters and draft vocabularies for the random targets, made in a second."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from mtpc.data.byte_tokenizer import save_byte_tokenizer
from mtpc.fastmtp.config import config_for
from mtpc.fastmtp.directory import save_layer
from mtpc.fastmtp.layer import MTPLayer
from mtpc.fastmtp.start import start_from_target
from mtpc.vocabulary.ranking import Ranking, Rankings
from tests.support.random_models import SHARPNESS

NOISE = 0.3  # of a tensor's mean size: enough for every weight to matter, too little to be always wrong
END = 256  # the byte tokenizer's end of text


def make_qwen2_target(folder: Path, seed: int = 0) -> Path:
    """A byte-level Qwen2 of two layers with its tokenizer, float32."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=258,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        rope_theta=1e4,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=257,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
                projection.bias.normal_(std=0.05)
    model.save_pretrained(folder)
    save_byte_tokenizer(folder)
    return folder


def make_fastmtp(folder: Path, target: Path, seed: int = 1, attention: float = 1.0) -> Path:
    """A drafter of three steps that is now and then right.

    attention: how much larger its attention's matrices are than a random target's, which hardly look back.
    """
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    layer = MTPLayer(config_for(model.config, 3))
    start_from_target(layer, model)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.add_(torch.randn_like(weight) * weight.abs().mean() * NOISE)
        for name, weight in layer.block.self_attn.named_parameters():
            weight.mul_(attention if name.endswith("weight") else 1.0)
    save_layer(folder, layer, {"purpose": "tests"})
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
