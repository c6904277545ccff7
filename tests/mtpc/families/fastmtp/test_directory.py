"""What can be wrong with a FastMTP drafter directory beside what can be with any: one sentence for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mtpc.directory.target import Target
from mtpc.errors import MTPCError
from mtpc.families.drafter import load_drafter, save_drafter
from tests.support.tiny_models import SIZE, VOCAB, make_fastmtp, make_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {"purpose": "tests"})
    return tmp_path / "drafter"


def test_the_tensors_have_the_names_of_a_published_checkpoint(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    assert all(name.startswith("model.mtp_layers.0.") for name in stored)
    assert all(VOCAB not in tensor.shape for tensor in stored.values())


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "wrong type": ({"num_drafts": "3"}, "num_drafts must be of type int, but is '3'"),
    "unknown layer": ({"layer": "gemma"}, "layer must be one of llama, qwen2, not 'gemma'"),
    "no drafts": ({"num_drafts": 0}, "num_drafts must be at least 1, not 0"),
    "heads at odds": ({"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads"),
    "odd heads": ({"head_dim": 3}, "head_dim must be even"),
    "no epsilon": ({"rms_norm_eps": 0.0}, "rms_norm_eps must be positive"),
    "no bias": ({"layer": "qwen2"}, "attention_bias must be true"),
    "no theta": ({"rope_parameters": {"rope_type": "default"}}, "rope_theta must be a positive number"),
    "no rope type": ({"rope_parameters": {"rope_theta": 1.0}}, "rope_type must be a string"),
}


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
