"""Circuits on conversations start from trained drafters."""

from __future__ import annotations

import pytest
import torch

from mtpc.autoregressive.lora import lora_of
from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.conversation_circuit_recipe import ConversationCircuitRecipe
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from tests.mtpc.lab.training.tiny_recipes import ON_CONVERSATIONS, circuit, conversations_of, tiny_target
from tests.support.tiny_models import VOCAB

HEAD = {"leaves": "target", "token_input": True, "trunk_size": 8}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return tiny_target(tmp_path_factory.mktemp("target"))


def trained(config: MTPCConfig, target: FrozenTarget) -> Drafter:
    torch.manual_seed(1)
    drafter = target.bind(Drafter(MTPC(), config))
    for weight in drafter.parameters():
        weight.data.normal_()
    return drafter


def test_a_drafter_starts_from_one_with_or_without_its_lora_layers(target: FrozenTarget) -> None:
    plain = circuit("hmm", 4, **HEAD)
    adapted = circuit("hmm", 4, lora=lora_of(target.model.config, 1, 2), **HEAD)
    data, tokens = conversations_of(target, 0), torch.randint(VOCAB, (2, 5))
    last, below = target.states(tokens, {1})
    both = [trained(plain, target), trained(adapted, target)]
    for starts, used in ((both[:1], both[0]), (both[1:], both[1]), (both, both[1])):
        recipe = ConversationCircuitRecipe(target, data, {"it": adapted}, ON_CONVERSATIONS, starts=starts)
        drafter = recipe.models()["it"]
        weights, given = drafter.state_dict(), used.state_dict()
        assert given.keys() <= weights.keys()
        assert all(torch.equal(weights[name], given[name]) for name in given)
        assert drafter.autoregressive is not None
        read = drafter.autoregressive(None, below[1], torch.arange(5).expand(2, 5))
        assert torch.allclose(read, last, atol=1e-4) == (used is both[0])  # new adapters change nothing


def test_a_drafter_does_not_start_from_another_circuit(target: FrozenTarget) -> None:
    plain, other = circuit("hmm", 4, **HEAD), circuit("btree", 4, **HEAD)
    adapted = circuit("hmm", 4, lora=lora_of(target.model.config, 1, 2), **HEAD)
    for config, start in ((plain, other), (plain, adapted), (adapted, other)):
        with pytest.raises(MTPCError, match="has another configuration than the drafters of this training"):
            ConversationCircuitRecipe(
                target, conversations_of(target, 0), {"it": config}, ON_CONVERSATIONS, starts=[trained(start, target)]
            )
