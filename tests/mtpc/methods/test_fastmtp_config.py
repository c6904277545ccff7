"""The configuration of a FastMTP drafter: from a target, to engines, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config

from mtpc.errors import MTPCError
from mtpc.methods import recognize
from mtpc.methods.fastmtp import FastMTP, config_for
from tests.support.tiny_models import HEAD_DIM, KINDS, SHAPE, target_config


class MiMoConfig(Qwen2Config):
    """As XiaomiMiMo/MiMo-7B-RL brings it."""

    model_type = "mimo"


def test_the_layer_is_the_targets() -> None:
    llama = config_for(LlamaConfig(**SHAPE, head_dim=8), 3)
    assert (llama.layer, llama.head_dim, llama.attention_bias, llama.num_drafts) == ("llama", 8, False, 3)
    assert llama.rope_parameters["rope_theta"] == 1000.0
    qwen = config_for(Qwen2Config(**SHAPE), 2)
    assert (qwen.layer, qwen.head_dim, qwen.attention_bias) == ("qwen2", 4, True)
    assert config_for(MiMoConfig(**SHAPE), 2) == qwen
    qwen3 = config_for(target_config("qwen3"), 2)
    assert (qwen3.layer, qwen3.head_dim, qwen3.attention_bias) == ("qwen3", HEAD_DIM, False)


def test_of_a_mixture_of_experts_the_layer_is_a_dense_one() -> None:
    assert config_for(target_config("qwen3_moe"), 2) == config_for(target_config("qwen3"), 2)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            MistralConfig(**SHAPE),
            "^Cannot use layers of model_type 'mistral': supported are llama, qwen2, mimo, qwen3, qwen3_moe.$",
        ),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), "hidden_act is 'gelu'"),
        (LlamaConfig(**SHAPE, mlp_bias=True), "mlp_bias is True"),
        (Qwen2Config(**SHAPE, use_sliding_window=True), "use_sliding_window is True"),
        (target_config("qwen3_moe", use_sliding_window=True), "use_sliding_window is True"),
        (target_config("qwen3", attention_bias=True), "attention_bias must be false for a layer of type 'qwen3'"),
    ],
)
def test_a_target_that_the_layer_could_not_be_like(target: PreTrainedConfig, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        config_for(target, 3)


@pytest.mark.parametrize("target", [target_config(kind) for kind in KINDS], ids=KINDS)
def test_engines_read_one_layer_like_the_targets(target: PreTrainedConfig, tmp_path: Path) -> None:
    config = config_for(target, 3)
    (tmp_path / "config.json").write_text(json.dumps(FastMTP().to_json(config)))
    assert FastMTP().read_config(tmp_path) == config
    assert isinstance(recognize(tmp_path), FastMTP)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.architectures == ["EagleFastMTPForCausalLM"]
    assert loaded.num_hidden_layers == 1
    same = ("model_type", "hidden_size", "num_key_value_heads", "intermediate_size", "rms_norm_eps", "rope_parameters")
    assert all(getattr(loaded, name) == getattr(target, name) for name in same)
    assert loaded.head_dim == config.head_dim


def test_other_folders_are_no_fastmtp_drafters(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"config\.json is missing"):
        recognize(tmp_path)
    (tmp_path / "config.json").write_text('{"mtpc": {}}')
    assert not isinstance(recognize(tmp_path), FastMTP)
    with pytest.raises(MTPCError, match="no section 'fastmtp', so it does not describe a FastMTP drafter"):
        FastMTP().read_config(tmp_path)
