"""Tiny random targets and layers for the tests of FastMTP."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from mtpc.fastmtp.config import config_for
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from tests.oracles.fastmtp import Reference

VOCAB, SIZE = 23, 16
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": SIZE,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
}
KINDS = ("llama", "qwen2")


def make_target(kind: str, seed: int = 0) -> PreTrainedModel:
    """A target of two layers, float32, as sure of itself as a trained one."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**SHAPE))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.1))
            parameter.add_(1.0 if parameter.ndim == 1 else 0.0)
    return model.requires_grad_(False).eval()


def make_layer(target: PreTrainedModel, num_drafts: int = 3, seed: int = 1) -> MTPLayer:
    """An untrained layer with weights large enough that every part of it matters."""
    torch.manual_seed(seed)
    layer = MTPLayer(config_for(target.config, num_drafts))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4 + (1.0 if parameter.ndim == 1 else 0.0))
    return layer.requires_grad_(False).eval()


def reference(layer: MTPLayer, head: SharedHead) -> Reference:
    """The oracle of a layer."""
    return Reference(layer.config, layer.checkpoint(), head.embedding, head.rows)
