"""The target's last layers with adapters: against the target itself, a target with merged weights, and peft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.config import layer_of
from mtpc.autoregressive.lora import ADAPTED_MODULES, LoRALayersConfig
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.target import Target
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.target_head.shared import SharedHead
from tests.oracles.adapted_layers import AdaptedLayersOracle, merged_weights
from tests.support.tiny_models import KINDS, SIZE, VOCAB, make_target

CIRCUIT = {"circuit": "cp", "window": 3, "rank": 2, "hidden_size": SIZE, "vocab_size": VOCAB, "leaves": "table"}
LAYERS = 3


@pytest.fixture(params=[(kind, count) for kind in KINDS for count in (1, 2)], ids=str)
def made(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, Drafter]:
    """A target of three layers, and a drafter that adapts the last one or two."""
    kind, count = request.param
    target = make_target(kind, num_hidden_layers=LAYERS)
    return target, make_lora(target, count)


def make_lora(target: PreTrainedModel, count: int, **keys: Any) -> Drafter:
    torch.manual_seed(5)
    lora = {**layer_of(target.config), "num_hidden_layers": count, "target_layers": LAYERS, "rank": 3, "alpha": 6.0}
    drafter = Drafter(MTPC(), MTPCConfig.model_validate(CIRCUIT | {"sum_features": 0, "lora": lora | keys}))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_(0, 0.3)
    layers_of(drafter).bind(target)
    return drafter.requires_grad_(False).eval()


def layers_of(drafter: Drafter) -> AdaptedLayers:
    assert isinstance(drafter.autoregressive, AdaptedLayers)
    return drafter.autoregressive


@torch.inference_mode()
def states(target: PreTrainedModel, tokens: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """The states below a layer and after the final norm, [B, T, d] each."""
    output = target(tokens, output_hidden_states=True)
    return output.hidden_states[below], output.hidden_states[-1]


def texts() -> Tensor:
    return torch.randint(VOCAB, (2, 11), generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
def test_the_state_is_the_targets_without_adapters_and_that_of_merged_weights_with_them(
    made: tuple[PreTrainedModel, Drafter],
) -> None:
    target, drafter = made
    part = layers_of(drafter)
    below, last = states(target, texts(), part.config.state_below)
    positions = torch.arange(below.shape[1])[None]
    adapted = part(None, below, positions)
    oracle = AdaptedLayersOracle(
        part.config, merged_weights(part, part.state_dict()), *(target.get_input_embeddings().weight,) * 2
    )
    for row in range(2):
        torch.testing.assert_close(adapted[row].double(), oracle.states(below[row]), atol=1e-4, rtol=1e-4)
    assert (adapted - last).abs().max() > 0.1
    for name, parameter in part.named_parameters():
        if "lora_B" in name:
            parameter.zero_()
    assert torch.equal(part(None, below, positions), last)


@torch.inference_mode()
def test_a_draft_follows_the_states_of_all_positions_since_the_text_began(
    made: tuple[PreTrainedModel, Drafter],
) -> None:
    """In parts, the keys of earlier positions come from the cache; the target's own projections are untouched."""
    target, drafter = made
    part, tokens = layers_of(drafter), texts()
    before = states(target, tokens, 1)[1]
    below, _ = states(target, tokens, part.config.state_below)
    session, head = ReferenceDrafter(drafter, SharedHead.of(target)), SharedHead.of(target)
    for start, end in ((0, 4), (4, 5), (5, 10)):
        in_parts = session.draft(below[:, start:end], tokens[:, start + 1 : end + 1], 2, torch.ones(2), noise())
        whole = ReferenceDrafter(drafter, head).draft(below[:, :end], tokens[:, 1 : end + 1], 2, torch.ones(2), noise())
        torch.testing.assert_close(in_parts.probs, whole.probs)
    only_last = ReferenceDrafter(drafter, head).draft(below[:, 9:10], tokens[:, 10:], 2, torch.ones(2), noise())
    assert (only_last.probs - whole.probs).abs().max() > 1e-3  # type: ignore[operator]
    assert torch.equal(states(target, tokens, 1)[1], before)


def noise() -> Tensor:
    return torch.rand(2, 2, generator=torch.Generator().manual_seed(4)).double()


def test_files_are_those_of_peft(made: tuple[PreTrainedModel, Drafter], tmp_path: Path) -> None:
    """The library loads them into the target, and its state is ours; the base weights are in no file."""
    target, drafter = made
    part = layers_of(drafter)
    save_drafter(tmp_path, drafter, {})
    loaded = load_drafter(tmp_path, Target(SIZE, VOCAB, LAYERS))
    layers_of(loaded).bind(target)
    below, last = states(target, texts(), part.config.state_below)
    with torch.inference_mode():
        adapted = layers_of(loaded)(None, below, torch.arange(11)[None])
    assert (
        sum(file.stat().st_size for file in tmp_path.glob("adapter_model*"))
        < 2 * sum(parameter.numel() for parameter in part.parameters()) + 10_000
    )

    from peft import PeftModel

    with torch.inference_mode():
        theirs = PeftModel.from_pretrained(target, tmp_path)(texts(), output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(adapted, theirs, atol=1e-5, rtol=1e-5)
    assert (theirs - last).abs().max() > 0.1


def test_files_that_peft_has_saved_are_read(tmp_path: Path) -> None:
    """Adapters of peft's own making, with its key order and its default keys."""
    from peft import LoraConfig, get_peft_model

    target = make_target("llama", num_hidden_layers=LAYERS)
    drafter = make_lora(target, 2, modules=["q_proj", "down_proj"], rank=4, alpha=8.0)
    save_drafter(tmp_path, drafter, {})
    numbers = list(layers_of(drafter).config.layer_numbers)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["down_proj", "q_proj"], layers_to_transform=numbers, init_lora_weights=False
    )
    theirs = get_peft_model(target, config)
    theirs.save_pretrained(tmp_path)
    with torch.inference_mode():
        output = theirs(texts(), output_hidden_states=True)
        loaded = load_drafter(tmp_path)
        layers_of(loaded).bind(make_target("llama", num_hidden_layers=LAYERS))
        adapted = layers_of(loaded)(None, output.hidden_states[numbers[0]], torch.arange(11)[None])
    torch.testing.assert_close(adapted, output.hidden_states[-1], atol=1e-5, rtol=1e-5)


def test_adapters_of_another_configuration_are_refused(tmp_path: Path) -> None:
    target = make_target("llama", num_hidden_layers=LAYERS)
    drafter = make_lora(target, 1)
    save_drafter(tmp_path, drafter, {})
    path = tmp_path / "adapter_config.json"
    stored = json.loads(path.read_text())
    for key, value in (
        ("r", 4),
        ("lora_alpha", 1),
        ("target_modules", ["q_proj"]),
        ("layers_to_transform", [0]),
        ("use_dora", True),
        ("bias", "all"),
    ):
        path.write_text(json.dumps(stored | {key: value}))
        with pytest.raises(MTPCError, match=f"adapter_config.json: {key} is .* but config.json .* requires"):
            load_drafter(tmp_path)
    path.write_text(json.dumps(stored))
    load_drafter(tmp_path)
    with pytest.raises(MTPCError, match="adapts the last layers of a target with 3 layers, but this target has 4"):
        load_drafter(tmp_path, Target(SIZE, VOCAB, 4))
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(MTPCError, match="adapter_model"):
        load_drafter(tmp_path)


def test_a_target_of_other_layers_is_refused() -> None:
    target = make_target("llama", num_hidden_layers=LAYERS)
    part = layers_of(make_lora(target, 1))
    with pytest.raises(MTPCError, match="a target with 3 layers, not 2"):
        part.bind(make_target("llama"))
    with pytest.raises(
        MTPCError, match=r"for a gate_proj of \[24, 16\], but that of the target's layers is \[32, 16\]"
    ):
        part.bind(make_target("llama", num_hidden_layers=LAYERS, intermediate_size=32))


def test_configurations_that_are_no_adapted_layers_are_refused() -> None:
    lora = {**layer_of(make_target("llama").config), "num_hidden_layers": 1, "target_layers": LAYERS}
    assert LoRALayersConfig.model_validate(lora).modules == list(ADAPTED_MODULES)
    for keys, message in (
        ({"num_hidden_layers": 3}, "must be below target_layers"),
        ({"modules": []}, "one projection or more"),
        ({"modules": ["q_proj", "q_proj"]}, "each once"),
        ({"modules": ["lm_head"]}, "lora.modules"),
        ({"rank": 0}, "lora.rank"),
        ({"vocab_size": VOCAB + 1}, "lora.vocab_size must be vocab_size"),
    ):
        with pytest.raises(MTPCError, match=message):
            validated(MTPCConfig, CIRCUIT | {"lora": lora | keys}, "the example")
