"""What is no target: a folder that transformers would load with random weights, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, LlamaConfig

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import save_drafter
from tests.support.tiny_models import SHAPE, make_fastmtp, make_target


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


@pytest.mark.parametrize("kind", ["plain", "scaled", "capped"])
def test_logits_that_the_model_changes_after_its_output_head(tmp_path: Path, kind: str) -> None:
    """Granite scales them and Gemma 2 caps them."""
    torch.manual_seed(0)
    configs = {
        "plain": LlamaConfig(**SHAPE),
        "scaled": GraniteConfig(**SHAPE, logits_scaling=8.0),
        "capped": Gemma2Config(**SHAPE, head_dim=4, query_pre_attn_scalar=4, final_logit_softcapping=0.01),
    }
    AutoModelForCausalLM.from_config(configs[kind]).save_pretrained(tmp_path)
    target, tokens = FrozenTarget(tmp_path), torch.tensor([[3, 1, 4, 1, 5]])
    features = target.features(tokens, below=[1])
    whole = target.model(input_ids=tokens, output_hidden_states=True)
    assert torch.equal(features.logits, whole.logits)
    assert torch.equal(features.hidden, whole.hidden_states[-1])
    assert torch.equal(features.below[1], whole.hidden_states[1])
    assert torch.equal(target.hidden(tokens), features.hidden)
    if kind == "plain":
        target.check_head()
        return
    with pytest.raises(MTPCError, match="scales or caps the logits"):
        target.check_head()


def test_the_digest_is_of_all_weights(folder: Path) -> None:
    before = FrozenTarget(folder).digest()
    state = {name: tensor + 1 for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    first = FrozenTarget(folder).digest()
    torch.save({name: tensor + 1 for name, tensor in state.items()}, folder / "pytorch_model.bin")
    assert len({before, first, FrozenTarget(folder).digest()}) == 3


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
