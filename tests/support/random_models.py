"""Tiny random targets and drafters, made in a second: what the engine tests serve where quality does not matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from mtpc.lab.text.byte_tokenizer import save_byte_tokenizer
from mtpc.lab.training.recipes.byte_circuit_recipe import byte_unembedding
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.methods.copying import PromptLookupConfig, PromptLookupOnly
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.support.tiny_models import make_byte_circuit as tiny_byte_circuit

SHARPNESS = 12.0  # makes the next-token distributions of a random model as peaked as a trained one's


def make_target(folder: Path, seed: int = 0, layers: int = 2, kv_heads: int = 1, mlp_size: int = 128) -> Path:
    """A byte-level Llama with its tokenizer, float32."""
    torch.manual_seed(seed)
    config = ByteTargetConfig(
        hidden_size=64, layers=layers, heads=2, kv_heads=kv_heads, mlp_size=mlp_size, context=1024
    )
    model = build_byte_llama(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
    model.save_pretrained(folder)
    save_byte_tokenizer(folder)
    return folder


def make_drafter(folder: Path, target: Path, circuit: str = "btree", window: int = 8, rank: int = 4) -> Path:
    """An untrained drafter for ``target``, as sure of its drafts as a trained one, and now and then right."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    config = MTPCConfig(
        circuit=circuit,
        window=window,
        rank=1 if circuit == "ff" else rank,
        hidden_size=model.config.hidden_size,
        vocab_size=model.config.vocab_size,
        leaves="table",
        sum_features=0,
    )
    drafter = Drafter(MTPC(), config)
    assert isinstance(drafter.parallel, CircuitPart)
    unembedding = model.get_output_embeddings().weight.detach()
    drafter.parallel.head.initialize(unembedding)
    for (
        weight
    ) in drafter.parallel.head.leaves.parameters():  # [n, R, V, d]: the target's own head at every position, and noise
        with torch.no_grad():
            weight.copy_(unembedding + unembedding.std() * torch.randn_like(weight) / 2)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_target_leaves(folder: Path, target: Path, circuit: str = "hmm", **keys: Any) -> Path:
    """An untrained drafter through the target's head, now and then right; keys: others of its section."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    sizes = {"hidden_size": model.config.hidden_size, "vocab_size": model.config.vocab_size}
    features = {"leaf_features": 16, "component_features": 8, "sum_features": 8, "trunk_size": 32}
    config = MTPCConfig.model_validate(
        {"circuit": circuit, "window": 6, "rank": 3, "leaves": "target"} | sizes | features | keys
    )
    drafter = Drafter(MTPC(), config)
    assert isinstance(drafter.parallel, CircuitPart)
    drafter.parallel.head.initialize(model.get_output_embeddings().weight.detach())
    with torch.no_grad():
        for weight in drafter.parameters():  # each position and component differs from the target's own head
            weight.add_(torch.randn_like(weight) * 0.3 * weight.shape[-1] ** -0.5)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_byte_circuit(folder: Path, target: Path, circuit: str = "hmm", window: int = 20, rank: int = 4) -> Path:
    """An untrained drafter over bytes; a third of the target's tokens are two bytes long, and begin as another one."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    texts = [bytes([each - 1, each] if each % 3 == 2 else [each]) for each in range(256)]
    special = frozenset(range(256, model.config.vocab_size))
    tokens = TokenBytes((*texts, *[None] * len(special)), special, frozenset())
    drafter = tiny_byte_circuit(
        circuit, tokens, window, rank, model.config.hidden_size, leaves="table", sum_features=0, num_drafts=5
    )
    assert isinstance(drafter.parallel, ByteCircuitPart)
    head, rows = drafter.parallel.head, byte_unembedding(model.get_output_embeddings().weight.detach(), tokens)
    head.initialize(rows)
    with torch.no_grad():
        for weight in head.leaves.parameters():
            weight.copy_(rows + rows.std() * torch.randn_like(weight) / 2)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def make_copying(folder: Path, target: Path) -> Path:
    """A drafter that only copies, for ``target``."""
    sizes = json.loads((target / "config.json").read_text())
    config = PromptLookupConfig(hidden_size=sizes["hidden_size"], vocab_size=sizes["vocab_size"])
    save_drafter(folder, Drafter(PromptLookupOnly(), config), {"purpose": "tests"})
    return folder
