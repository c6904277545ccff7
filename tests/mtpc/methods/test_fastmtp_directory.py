"""Errors that only a FastMTP drafter checkpoint can have: one sentence for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.methods.drafter import load_drafter, save_drafter
from tests.support.tiny_models import SIZE, VOCAB, make_fastmtp, make_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {"purpose": "tests"})
    return tmp_path / "drafter"


def test_the_tensors_have_the_names_of_a_published_checkpoint(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    assert all(name.startswith("model.mtp_layers.0.") for name in stored)
    assert all(VOCAB not in tensor.shape for tensor in stored.values())


ROPE: dict[str, object] = {"rope_theta": 1e4, "rope_type": "default"}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "wrong type": ({"num_drafts": "3"}, "at 'num_drafts': it is '3', but should be a valid integer"),
    "unknown layer": ({"layer": "gemma"}, "at 'layer': it is 'gemma', but should be 'llama', 'qwen2' or 'qwen3'"),
    "no drafts": ({"num_drafts": 0}, "at 'num_drafts': it is 0, but should be greater than or equal to 1"),
    "too many drafts": ({"num_drafts": 10**9}, "should be less than or equal to 256"),
    "heads at odds": ({"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads"),
    "odd heads": ({"head_dim": 3}, "at 'head_dim': it is 3, but should be a multiple of 2"),
    "no epsilon": ({"rms_norm_eps": 0.0}, "at 'rms_norm_eps'"),
    "no bias": ({"layer": "qwen2"}, "attention_bias must be true"),
    "a bias": ({"layer": "qwen3", "attention_bias": True}, "attention_bias must be false"),
    "no theta": ({"rope_parameters": {"rope_type": "default"}}, "the key 'rope_theta' is missing"),
    "no rope type": ({"rope_parameters": {"rope_theta": 1.0}}, "the key 'rope_type' is missing"),
    "an unknown rope": ({"rope_parameters": ROPE | {"rope_type": "nonsense"}}, "its 'rope_type' is 'nonsense', but"),
    "a rope without its keys": ({"rope_parameters": ROPE | {"rope_type": "yarn"}}, "the key 'factor' is missing"),
    "another rope's keys": ({"rope_parameters": ROPE | {"factor": 2.0}}, "unknown key 'factor'"),
    "a rope that is no number": (
        {"rope_parameters": {**ROPE, **LLAMA3, "rope_type": "llama3", "factor": float("nan")}},
        "at 'rope_parameters.factor': it is nan",
    ),
    "more positions than any engine holds": (
        {"rope_parameters": {**ROPE, **LLAMA3, "rope_type": "llama3", "factor": 1e300}},
        "scales 64 positions to more than 16777216",
    ),
    "a factor too few": (
        {
            "rope_parameters": {
                **ROPE,
                "rope_type": "longrope",
                "short_factor": [1.0],
                "long_factor": [1.0, 2.0],
                "original_max_position_embeddings": 64,
            }
        },
        "rope_parameters.short_factor must have 2 numbers",
    ),
}


def test_every_rope_that_the_engines_know(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    for kind in (
        {"rope_type": "linear", "factor": 2},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "llama3", **LLAMA3},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32},
    ):
        values["rope_parameters"] = values["fastmtp"]["rope_parameters"] = {"rope_theta": 10000, **kind}
        (folder / "config.json").write_text(json.dumps(values))
        layer = load_drafter(folder).autoregressive
        assert layer is not None
        cosine, _ = layer.rotary(torch.zeros(1, 3, SIZE), torch.arange(3)[None])
        assert cosine.isfinite().all()


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_gets_one_sentence(folder: Path, case: str) -> None:
    change, expected = BROKEN[case]
    values = json.loads((folder / "config.json").read_text())
    values["fastmtp"].update(change)
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(MTPCError) as caught:
        load_drafter(folder, Target(hidden_size=SIZE, vocab_size=VOCAB))
    message = str(caught.value)
    assert expected in message
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")


def test_another_drafter_is_refused(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["mtpc"] = values.pop("fastmtp")
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(MTPCError, match=r"config\.json"):
        load_drafter(folder)
