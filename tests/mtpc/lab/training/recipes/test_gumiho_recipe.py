"""What a training starts from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtpc.autoregressive.layer import DraftLayers
from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.gumiho_recipe import GumihoRecipe, config_for
from mtpc.lab.training.settings import GumihoSettings
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import SIZE, VOCAB, make_fastmtp, make_mtpc, make_target, randomise_layer

HEADS = {"positions": 2, "blocks": 1}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder: Path = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


def begun(target: FrozenTarget, start: Drafter | None, layers: int = 2, normed: bool = True) -> Drafter:
    """The one drafter of a training, before its first update."""
    config = config_for(target.model.config, HEADS, num_hidden_layers=layers, normed=normed)
    conversations = make_conversations(target.model, 4)
    recipe = GumihoRecipe(target, conversations, {"one": config}, GumihoSettings(steps=2, positions=2), start=start)
    (drafter,) = recipe.models().values()
    return drafter


def step_of(layer: DraftLayers | None, head: SharedHead) -> Tensor:
    """The states after a first step over some random text."""
    assert layer is not None
    generator = torch.Generator().manual_seed(0)
    hidden, tokens = torch.randn(1, 6, SIZE, generator=generator), torch.randint(VOCAB, (1, 6), generator=generator)
    return layer(head.embed(tokens), hidden, torch.arange(6)[None])


@pytest.mark.parametrize("layers", [1, 2])
def test_it_goes_on_from_a_trained_layer_and_layers_that_change_nothing_yet(target: FrozenTarget, layers: int) -> None:
    trained, head = make_fastmtp(target.model), SharedHead.of(target.model)
    drafter = begun(target, trained, layers)
    torch.testing.assert_close(step_of(drafter.autoregressive, head), step_of(trained.autoregressive, head))
    untrained = step_of(begun(target, None, layers).autoregressive, head)
    assert not torch.allclose(untrained, step_of(trained.autoregressive, head), atol=0.1)


def test_one_of_the_same_kind_is_gone_on_from_as_a_whole(target: FrozenTarget) -> None:
    trained = begun(target, None)
    randomise_layer(trained)
    started = begun(target, trained)
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), started.parameters(), strict=True))


def test_layers_behind_experts_are_dense_and_start_without_their_mlps(tmp_path: Path) -> None:
    make_target("qwen3_moe").save_pretrained(tmp_path)
    target = FrozenTarget(tmp_path)
    drafter = begun(target, None)
    assert isinstance(drafter.autoregressive, DraftLayers)
    assert drafter.autoregressive.config.layer == "qwen3"
    for block, source in zip(drafter.autoregressive.blocks, target.model.model.layers, strict=True):
        assert torch.equal(block.self_attn.q_norm.weight, source.self_attn.q_norm.weight)
        assert not block.mlp.down_proj.weight.any()
        assert block.mlp.up_proj.weight.any()


def test_more_layers_than_the_targets_are_refused(target: FrozenTarget) -> None:
    for start in (None, make_fastmtp(target.model)):
        with pytest.raises(MTPCError, match="3 draft layers cannot start from a target with 2 layers"):
            begun(target, start, layers=3)


def test_other_layers_are_refused(target: FrozenTarget) -> None:
    with pytest.raises(MTPCError, match="has layers of another shape than this training's, or more"):
        begun(target, make_fastmtp(target.model), normed=False)
    with pytest.raises(MTPCError, match="has layers of another shape than this training's, or more"):
        begun(target, begun(target, None), layers=1)
    with pytest.raises(MTPCError, match="the drafter to start from has no autoregressive part"):
        begun(target, make_mtpc("hmm", 4, 2, SIZE, VOCAB))
