"""Tiny random drafters of every draft method, for a vocabulary of five tokens."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.config import layer_of
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.files.config_model import validated
from mtpc.methods.copying import PromptLookupConfig, PromptLookupOnly
from mtpc.methods.drafter import Drafter
from mtpc.methods.gumiho import Gumiho, GumihoConfig
from mtpc.methods.medusa import Medusa, MedusaConfig
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.support.random_hybrid import method
from tests.support.tiny_models import SIZE, make_byte_circuit, make_fastmtp, make_mtpc, make_target, randomise_layer

Module = TypeVar("Module", bound=nn.Module)
JOINT = {"positions": 3, "blocks": 1, "rank": 2, "component_features": 2, "sum_features": 3}
VOCAB = 5  # windows are enumerated
WINDOW, RANK = 4, 2
CIRCUIT = {"circuit": "hmm", "window": WINDOW, "rank": RANK, "leaves": "table", "sum_features": 0}
# A special token, two of the same bytes, and two that begin alike: three can be drafted.
SPELLED = TokenBytes((None, b"a", b"ab", b"ba", b"a"), frozenset({0}), frozenset())
SHARED_LEAVES = {"leaf_features": 3, "component_features": 2, "sum_features": 3, "trunk_size": 6}


def tiny_target(kind: str = "llama") -> PreTrainedModel:
    """The target of all examples; a "qwen2" of the same sizes for those that are named so."""
    return make_target(kind, vocab=VOCAB)


def mtpc(circuit: str, **options: object) -> Drafter:
    drafter = make_mtpc(circuit, WINDOW, RANK, SIZE, VOCAB, **options)
    return scaled(drafter)


def bytecircuit(circuit: str, **options: object) -> Drafter:
    """One whose window ends within the longest drafts."""
    return scaled(make_byte_circuit(circuit, SPELLED, 10, RANK, SIZE, **options))


def hybrid(circuit: str, **options: object) -> Drafter:
    own = {"circuit": circuit, "window": WINDOW, "rank": RANK, **options}
    return layered("hybrid", circuit=own)


def layered(name: str, **keys: object) -> Drafter:
    """Return a drafter of a method in tests/support/hybrid; keys: of its section, in addition to those of its layer."""
    torch.manual_seed(1)
    kind = method(name)
    drafter = Drafter(kind, kind.config(**layer_of(tiny_target().config), **keys))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    randomise_layer(scaled(drafter).autoregressive)
    return drafter.requires_grad_(False).eval()


def subset(parallel: dict[str, object] | None) -> Drafter:
    """One that drafts three of the five tokens."""
    drafter = layered("subset", parallel=parallel, tokens=3)
    assert (
        drafter.autoregressive is not None
        and drafter.autoregressive.own is not None
        and drafter.autoregressive.own.tokens is not None
    )
    drafter.autoregressive.own.tokens.copy_(torch.tensor([0, 2, 3]))
    return drafter


def gumiho(parallel: dict[str, object] | None, **options: object) -> Drafter:
    torch.manual_seed(1)
    config = validated(GumihoConfig, {**layer_of(tiny_target().config), "parallel": parallel, **options}, "the example")
    drafter = Drafter(Gumiho(), config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    randomise_layer(scaled(drafter).autoregressive)
    if not config.normed:
        scaled(drafter.autoregressive)  # what no norm holds back grows from step to step
    return drafter.requires_grad_(False).eval()


def medusa(**options: Any) -> Drafter:
    torch.manual_seed(1)
    drafter = Drafter(Medusa(), MedusaConfig(hidden_size=SIZE, vocab_size=VOCAB, **options))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    return scaled(drafter).requires_grad_(False).eval()


def mtpc_lora(circuit: str, kind: str = "llama", **options: object) -> Drafter:
    """A circuit behind the last layer of the tiny target with adapters."""
    target = tiny_target(kind)
    lora = {**layer_of(target.config), "num_hidden_layers": 1, "target_layers": 2, "rank": 3, "alpha": 6.0}
    drafter = mtpc(circuit, lora=LoRALayersConfig.model_validate(lora), **options)
    assert isinstance(drafter.autoregressive, AdaptedLayers)
    drafter.autoregressive.bind(target)
    return drafter


def copying() -> Drafter:
    """One that only copies."""
    return Drafter(PromptLookupOnly(), PromptLookupConfig(hidden_size=SIZE, vocab_size=VOCAB))


@torch.no_grad()
def scaled(drafter: Module) -> Module:
    """A drafter or a part of one, less sure of itself: with few tokens that are next to impossible."""
    for parameter in drafter.parameters():
        parameter.mul_(0.4)
    return drafter


# By the name of a draft method, then of what is special about the example; every registered method has at least one.
EXAMPLES = {
    "mtpc-ff": lambda: mtpc("ff", leaves="table"),
    "mtpc-cp": lambda: mtpc("cp", **SHARED_LEAVES),
    "mtpc-hmm-token-input": lambda: mtpc("hmm", token_input=True, **SHARED_LEAVES),
    "mtpc-hmm": lambda: mtpc("hmm", leaves="table", sum_features=0),
    "mtpc-lora-hmm": lambda: mtpc_lora("hmm", leaves="table", sum_features=0),
    "mtpc-lora-qwen3-cp": lambda: mtpc_lora("cp", "qwen3", **SHARED_LEAVES),
    "mtpc-btree": lambda: mtpc("btree", **SHARED_LEAVES),
    "mtpc-hmm-target": lambda: mtpc("hmm", leaves="target", **SHARED_LEAVES),
    "mtpc-cp-target-token-input": lambda: mtpc("cp", leaves="target", token_input=True, **SHARED_LEAVES),
    "bytecircuit-ff": lambda: bytecircuit("ff", leaves="table"),
    "bytecircuit-cp": lambda: bytecircuit("cp", **SHARED_LEAVES),
    "bytecircuit-hmm": lambda: bytecircuit("hmm", **SHARED_LEAVES),
    "fastmtp-llama": lambda: make_fastmtp(tiny_target()),
    "fastmtp-qwen2": lambda: make_fastmtp(tiny_target("qwen2")),
    "hybrid-hmm": lambda: hybrid("hmm", leaves="table", sum_features=0),
    "hybrid-hmm-target": lambda: hybrid("hmm", leaves="target", **SHARED_LEAVES),
    "hybrid-btree-token-input": lambda: hybrid("btree", token_input=True, **SHARED_LEAVES),
    "gumiho-ff": lambda: gumiho({"positions": 3, "blocks": 2}, num_hidden_layers=2),
    "gumiho-published": lambda: gumiho({"positions": 3, "blocks": 1}, num_hidden_layers=2, normed=False),
    "gumiho-hmm": lambda: gumiho({**JOINT, "circuit": "hmm"}),
    "gumiho-cp-one-step": lambda: gumiho({**JOINT, "circuit": "cp", "blocks": 0}, steps=1),
    "gumiho-eagle": lambda: gumiho(None, normed=False),
    "between-hmm": lambda: layered("between", circuit=CIRCUIT, below=1),
    "subset-ff": lambda: subset({"positions": 2, "blocks": 1}),
    "subset-eagle": lambda: subset(None),
    "medusa": lambda: medusa(heads=4),
    "medusa-shared": lambda: medusa(heads=5, layers=2, shared_output=True),
    "copying": copying,
}
# Of these the ones that draft something of their own.
WITH_PARTS = [name for name in EXAMPLES if name != "copying"]
