"""FastMTP drafter directories: a round trip, and one sentence for everything that can be wrong with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtpc.drafter import Target
from mtpc.errors import MTPCError
from mtpc.fastmtp.directory import load_layer, save_layer
from tests.mtpc.fastmtp.models import KINDS, SIZE, VOCAB, make_layer, make_target

FITTING = Target(hidden_size=SIZE, vocab_size=VOCAB)
PROJECTION = "model.mtp_layers.0.input_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_layer(tmp_path / "drafter", make_layer(make_target("llama")), {"purpose": "tests"})
    return tmp_path / "drafter"


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    layer = make_layer(make_target(kind))
    save_layer(tmp_path / "drafter", layer, {"purpose": "tests"})
    loaded = load_layer(tmp_path / "drafter", FITTING, dtype=torch.bfloat16)
    assert loaded.config == layer.config
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, layer.state_dict()[name].to(torch.bfloat16))
    assert json.loads((tmp_path / "drafter" / "provenance.json").read_text())["purpose"] == "tests"


def test_nothing_of_the_target_is_stored(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    assert all(name.startswith("model.mtp_layers.0.") for name in stored)
    assert all(VOCAB not in tensor.shape for tensor in stored.values())


def edit_config(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        change(values)
        (folder / "config.json").write_text(json.dumps(values))

    return edit


def own(**values: object) -> Callable[[Path], None]:
    return edit_config(lambda config: config["fastmtp"].update(values))


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return edit


BROKEN = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "another drafter": (edit_config(lambda c: c.update(mtpc=c.pop("fastmtp"))), "no section 'fastmtp'"),
    "unknown key": (own(colour="red"), "unknown key 'colour'"),
    "missing key": (edit_config(lambda c: c["fastmtp"].pop("layer")), "the key 'layer' is missing"),
    "wrong type": (own(num_drafts="3"), "num_drafts must be of type int, but is '3'"),
    "unknown layer": (own(layer="gemma"), "layer must be one of llama, qwen2, not 'gemma'"),
    "no drafts": (own(num_drafts=0), "num_drafts must be at least 1, not 0"),
    "heads at odds": (own(num_key_value_heads=3), "must be a multiple of num_key_value_heads"),
    "odd heads": (own(head_dim=3), "head_dim must be even"),
    "no epsilon": (own(rms_norm_eps=0.0), "rms_norm_eps must be positive"),
    "no bias": (own(layer="qwen2"), "attention_bias must be true"),
    "no theta": (own(rope_parameters={"rope_type": "default"}), "rope_theta must be a positive number"),
    "no rope type": (own(rope_parameters={"rope_theta": 1.0}), "rope_type must be a string"),
    "newer format": (own(version=9), "fastmtp.version is 9"),
    "another architecture": (edit_config(lambda c: c.update(architectures=["X"])), "architectures is ['X']"),
    "size at odds": (edit_config(lambda c: c.update(hidden_size=9)), f"hidden_size is 9, but {SIZE} was expected"),
    "missing tensor": (edit_weights(lambda w: w.pop(PROJECTION)), f"'{PROJECTION}' is missing"),
    "unknown tensor": (
        edit_weights(lambda w: w.update({"lm_head.weight": torch.ones(1)})),
        "'lm_head.weight' is unknown",
    ),
    "wrong shape": (edit_weights(lambda w: w.update({PROJECTION: torch.ones(SIZE, SIZE)})), "has shape"),
    "not a number": (edit_weights(lambda w: w[PROJECTION].fill_(torch.nan)), "not finite"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_gets_one_sentence(folder: Path, case: str) -> None:
    break_it, expected = BROKEN[case]
    break_it(folder)
    with pytest.raises(MTPCError) as caught:
        load_layer(folder, FITTING)
    message = str(caught.value)
    assert expected in message
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")


def test_another_target_is_refused(folder: Path) -> None:
    with pytest.raises(MTPCError, match=f"vocab_size {VOCAB}, but the target has 99"):
        load_layer(folder, Target(SIZE, 99))
