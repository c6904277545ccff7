"""What is no target: a folder that transformers would load with random weights, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import save_drafter
from tests.support.tiny_models import make_fastmtp, make_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_target("llama").save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def refused(folder: Path) -> str:
    with pytest.raises(MTPCError) as caught:
        FrozenTarget(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_a_drafter(tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {})
    assert "is a FastMTP drafter, but a target was expected" in refused(tmp_path / "drafter")


def test_a_drafter_of_a_family_that_is_not_known(tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {})
    file = tmp_path / "drafter" / "config.json"
    values = json.loads(file.read_text())
    del values["fastmtp"]
    file.write_text(json.dumps(values | {"architectures": ["EagleOfOthersForCausalLM"]}))
    assert "does not hold the tensor" in refused(tmp_path / "drafter")


def test_weights_that_lack_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "'model.layers.1.mlp.up_proj.weight'" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [{"model_type": "nonsense"}, {"hidden_size": 32}, {"num_attention_heads": 3}, {"rope_parameters": 5}],
    ids=str,
)
def test_a_configuration_that_does_not_fit(folder: Path, change: dict[str, object]) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert "cannot be loaded as a causal language model" in refused(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "cannot be loaded as a causal language model" in refused(folder)
