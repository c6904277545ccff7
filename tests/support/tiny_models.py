"""Tiny random targets, and drafters whose every part matters, made in milliseconds: for tests without an engine."""

from __future__ import annotations

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from mtpc.autoregressive.layer import DraftLayers
from mtpc.methods.bytecircuit import ByteCircuit, ByteDrafterConfig
from mtpc.methods.drafter import Drafter
from mtpc.methods.fastmtp import FastMTP, config_for
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.oracles.draft_layers import DraftLayersOracle

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
HEAD_DIM = 8  # of the kinds of targets that state it: not hidden_size / num_attention_heads
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": True}
KINDS = ("llama", "qwen2", "qwen3")


def target_config(kind: str, **keys: object) -> PreTrainedConfig:
    """Of a target of two layers; keys: others than those of `SHAPE`."""
    shape = SHAPE | keys
    if kind == "llama":
        return LlamaConfig(**shape)
    if kind == "qwen2":
        return Qwen2Config(**shape)
    shape = {"head_dim": HEAD_DIM} | shape
    return Qwen3Config(**shape) if kind == "qwen3" else Qwen3MoeConfig(**EXPERTS | shape)


def make_target(kind: str, seed: int = 0, vocab: int = VOCAB, **keys: object) -> PreTrainedModel:
    """A target of two layers, float32, as sure of itself as a trained one; keys: see `target_config`."""
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(target_config(kind, vocab_size=vocab, **keys))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.1))
            parameter.add_(1.0 if parameter.ndim == 1 else 0.0)
    return model.requires_grad_(False).eval()


@torch.no_grad()
def randomise_layer(layer: nn.Module) -> None:
    """Weights of a draft layer large enough that every part of it matters."""
    for parameter in layer.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.4 + (1.0 if parameter.ndim == 1 else 0.0))


def make_fastmtp(target: PreTrainedModel, num_drafts: int = 3, seed: int = 1) -> Drafter:
    """An untrained FastMTP drafter."""
    torch.manual_seed(seed)
    drafter = Drafter(FastMTP(), config_for(target.config, num_drafts))
    randomise_layer(drafter)
    return drafter.requires_grad_(False).eval()


def make_layer(target: PreTrainedModel, num_drafts: int = 3, seed: int = 1) -> DraftLayers:
    """The layer of an untrained FastMTP drafter."""
    layer = make_fastmtp(target, num_drafts, seed).autoregressive
    assert isinstance(layer, DraftLayers)
    return layer


def draft_layers_oracle(layer: DraftLayers, head: SharedHead) -> DraftLayersOracle:
    """Return the reference implementation of a layer."""
    return DraftLayersOracle(layer.config, layer.state_dict(), head.embedding, head.rows)


def make_mtpc(circuit: str, window: int, rank: int, hidden: int, vocab: int, **options: object) -> Drafter:
    """An untrained MTPC drafter; an FF circuit has rank 1.  options: other keys of its configuration."""
    torch.manual_seed(0)
    rank = 1 if circuit == "ff" else rank
    config = MTPCConfig(circuit=circuit, window=window, rank=rank, hidden_size=hidden, vocab_size=vocab, **options)  # type: ignore[arg-type]
    drafter = Drafter(MTPC(), config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    return drafter.requires_grad_(False).eval()


def make_byte_circuit(
    circuit: str, tokens: TokenBytes, window: int, rank: int, hidden: int, vocab: int | None = None, **options: object
) -> Drafter:
    """An untrained drafter over the bytes of these tokens.  options: other keys of its configuration."""
    torch.manual_seed(0)
    keys = {
        "circuit": circuit,
        "window": window,
        "rank": 1 if circuit == "ff" else rank,
        "hidden_size": hidden,
        "vocab_size": vocab or len(tokens.tokens),
        "text_bytes": sum(len(each or b"") for each in tokens.tokens),
        "target_tokens": tokens.digest(),
        "num_drafts": min(3, window // 2 - 1),
    }
    drafter = Drafter(ByteCircuit(), ByteDrafterConfig.model_validate(keys | options))
    assert isinstance(drafter.parallel, ByteCircuitPart)
    drafter.parallel.byte_vocabulary.set_tokens(tokens)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    return drafter.requires_grad_(False).eval()


def make_part(circuit: str, window: int, rank: int, hidden: int, vocab: int, **options: object) -> CircuitPart:
    """The window of an untrained MTPC drafter."""
    part = make_mtpc(circuit, window, rank, hidden, vocab, **options).parallel
    assert isinstance(part, CircuitPart)
    return part
