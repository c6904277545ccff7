"""A small recipe of every draft method that is trained here, for the contract that all recipes keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from mtpc.autoregressive.lora import lora_of
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.recipe import DrafterRecipe
from mtpc.lab.training.recipes import byte_circuit_recipe as byte_circuit
from mtpc.lab.training.recipes import conversation_circuit_recipe as conversation_circuit
from mtpc.lab.training.recipes import fastmtp_recipe as fastmtp
from mtpc.lab.training.recipes import gumiho_recipe as gumiho
from mtpc.lab.training.recipes import mtpc_recipe as mtpc
from mtpc.lab.training.settings import (
    BatchShape,
    ByteCircuitSettings,
    CircuitSettings,
    ConversationCircuitSettings,
    FastMTPSettings,
    GumihoSettings,
)
from mtpc.methods.bytecircuit import ByteDrafterConfig
from mtpc.methods.mtpc import MTPCConfig
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.mtpc.lab.corpus_folder import make_corpus
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import SIZE, VOCAB, make_target

MTPC = CircuitSettings(
    updates=12, warmup_updates=3, micro_batch=5, loss="kl", batch=BatchShape(texts=2, context=20, positions=6)
)
GUMIHO = GumihoSettings(steps=2, positions=2, epochs=2, batch=8, learning_rate=3e-3, micro_batch=4)
FASTMTP = FastMTPSettings(num_drafts=2, epochs=2, batch=8, learning_rate=3e-3, micro_batch=4)
BYTES = ByteCircuitSettings(num_drafts=2, epochs=2, batch=8, micro_batch=4)
ON_CONVERSATIONS = ConversationCircuitSettings(drafts=3, loss="kl", balance=0.1, epochs=2, batch=8, micro_batch=4)
SPELLED = [bytes([97 + i % 3] * (1 + i % 2) + [i] * (i > 5)) for i in range(VOCAB - 1)]
SPELLED_TOKENS = TokenBytes((*SPELLED, None), frozenset({VOCAB - 1}), frozenset())


def circuit(kind: str, window: int, **options: Any) -> MTPCConfig:
    """A circuit for the tiny targets."""
    sizes = {"hidden_size": SIZE, "vocab_size": VOCAB, "leaf_features": 8, "component_features": 4, "sum_features": 4}
    return MTPCConfig(circuit=kind, window=window, rank=1 if kind == "ff" else 3, **sizes, **options)


CIRCUITS = {"hmm": circuit("hmm", 4), "ff": circuit("ff", 3)}


def tiny_target(folder: Path) -> FrozenTarget:
    """A Llama of two layers."""
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


def of_mtpc(target: FrozenTarget, folder: Path, seed_of_data: int = 0, **changes: Any) -> DrafterRecipe:
    """Two circuits with windows of their own."""
    settings = dataclasses.replace(MTPC, **changes)
    return mtpc.CircuitRecipe(
        target, make_corpus(folder / f"corpus {seed_of_data}", VOCAB, seed=seed_of_data), CIRCUITS, settings
    )


@cache
def conversations_of(target: FrozenTarget, seed: int) -> list[Conversation]:
    """Forty conversations."""
    return make_conversations(target.model, 40, seed=seed)


def of_fastmtp(target: FrozenTarget, folder: Path, seed_of_data: int = 0, **changes: Any) -> DrafterRecipe:
    """A layer and forty conversations."""
    return fastmtp.FastMTPRecipe(
        target, conversations_of(target, seed_of_data), dataclasses.replace(FASTMTP, **changes)
    )


def of_gumiho(target: FrozenTarget, folder: Path, seed_of_data: int = 0, **changes: Any) -> DrafterRecipe:
    """Independent heads, a joint window and a drafter without heads, on forty conversations."""
    config, small = target.model.config, {"positions": 2, "blocks": 1, "component_features": 4, "sum_features": 4}
    configs = {
        "heads": gumiho.config_for(config, small, num_hidden_layers=2),
        "joint": gumiho.config_for(config, {**small, "circuit": "hmm", "rank": 3}),
        "eagle": gumiho.config_for(config, None, normed=False),
    }
    settings = dataclasses.replace(GUMIHO, **changes)
    return gumiho.GumihoRecipe(target, conversations_of(target, seed_of_data), configs, settings)


def of_byte_circuit(target: FrozenTarget, folder: Path, seed_of_data: int = 0, **changes: Any) -> DrafterRecipe:
    """Two circuits over bytes, of tokens of one to three bytes."""
    sizes = {"hidden_size": SIZE, "vocab_size": VOCAB, "leaf_features": 8, "component_features": 4, "sum_features": 4}
    spelled = {"text_bytes": sum(map(len, SPELLED)), "target_tokens": SPELLED_TOKENS.digest(), "num_drafts": 2}
    configs = {
        kind: ByteDrafterConfig(circuit=kind, window=10, rank=1 if kind == "ff" else 3, **sizes, **spelled)
        for kind in ("hmm", "ff")
    }
    settings = dataclasses.replace(BYTES, **changes)
    data = conversations_of(target, seed_of_data)
    return byte_circuit.ByteCircuitRecipe(target, SPELLED_TOKENS, data, configs, settings)


def of_mtpc_on_conversations(
    target: FrozenTarget, folder: Path, seed_of_data: int = 0, **changes: Any
) -> DrafterRecipe:
    """Circuits through the target's head and an unembedding of their own, one behind adapters, and a Markov head."""
    head: dict[str, Any] = {"leaves": "target", "token_input": True, "trunk_size": 8}
    configs = {
        "hmm": circuit("hmm", 4, **head),
        "shared": circuit("btree", 4),
        "markov": circuit("ff", 3, markov_rank=3, **head),
        "lora": circuit("cp", 3, lora=lora_of(target.model.config, 1, 2), **head),
    }
    settings = dataclasses.replace(ON_CONVERSATIONS, **changes)
    data = conversations_of(target, seed_of_data)
    return conversation_circuit.ConversationCircuitRecipe(target, data, configs, settings)


# Of each draft method: (target, a folder for its data, the seed of its data, changes of its settings) -> a recipe.
RECIPES: dict[str, Callable[..., DrafterRecipe]] = {
    "mtpc": of_mtpc,
    "mtpc on conversations": of_mtpc_on_conversations,
    "bytecircuit": of_byte_circuit,
    "fastmtp": of_fastmtp,
    "gumiho": of_gumiho,
}
