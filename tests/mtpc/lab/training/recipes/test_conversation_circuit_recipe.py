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
from tests.support.tiny_models import SIZE

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
    data, states = conversations_of(target, 0), torch.randn(2, 3, SIZE)
    for start in (plain, adapted):
        drafter = trained(start, target)
        recipe = ConversationCircuitRecipe(target, data, {"it": adapted}, ON_CONVERSATIONS, starts=[drafter])
        weights, given = recipe.models()["it"].state_dict(), drafter.state_dict()
        assert given.keys() <= weights.keys()
        assert all(torch.equal(weights[name], given[name]) for name in given)
        read = recipe.models()["it"].autoregressive
        assert read is not None
        output = read(None, states, torch.arange(3).expand(2, 3))
        unadapted = ConversationCircuitRecipe(target, data, {"it": adapted}, ON_CONVERSATIONS).models()["it"]
        assert unadapted.autoregressive is not None
        same = torch.allclose(output, unadapted.autoregressive(None, states, torch.arange(3).expand(2, 3)))
        assert same == (start is plain)  # new adapters change nothing


def test_a_drafter_does_not_start_from_another_circuit(target: FrozenTarget) -> None:
    plain, other = circuit("hmm", 4, **HEAD), circuit("btree", 4, **HEAD)
    adapted = circuit("hmm", 4, lora=lora_of(target.model.config, 1, 2), **HEAD)
    for config, start in ((plain, other), (plain, adapted), (adapted, other)):
        with pytest.raises(MTPCError, match="has another configuration than the drafters of this training"):
            ConversationCircuitRecipe(
                target, conversations_of(target, 0), {"it": config}, ON_CONVERSATIONS, starts=[trained(start, target)]
            )
