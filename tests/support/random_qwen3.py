"""Tiny random Qwen3 targets, dense or with experts, made in a second."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from mtpc.lab.text.byte_tokenizer import END_OF_TEXT, PAD, VOCAB_SIZE, save_byte_tokenizer
from tests.support.random_models import SHARPNESS

SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,  # more than hidden_size / num_attention_heads, as in Qwen3-30B-A3B
    "max_position_embeddings": 1024,
    "rope_theta": 1e6,
    "bos_token_id": END_OF_TEXT,
    "eos_token_id": END_OF_TEXT,
    "pad_token_id": PAD,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}


def make_qwen3(folder: Path, experts: bool = False) -> Path:
    """A byte-level Qwen3 of two layers with its tokenizer, float32."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**SHAPE, **EXPERTS) if experts else Qwen3Config(**SHAPE))
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
    model.save_pretrained(folder)
    save_byte_tokenizer(folder)
    return folder
