"""The configuration of a FastMTP drafter: from a target, to engines, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config

from mtpc.errors import MTPCError
from mtpc.methods import recognise
from mtpc.methods.fastmtp import FastMTP, config_for
from tests.support.tiny_models import SHAPE


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


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (MistralConfig(**SHAPE), "of type 'mistral'"),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), "hidden_act is 'gelu'"),
        (LlamaConfig(**SHAPE, mlp_bias=True), "mlp_bias is True"),
        (Qwen2Config(**SHAPE, use_sliding_window=True), "use_sliding_window is True"),
    ],
)
def test_a_target_that_the_layer_could_not_be_like(target: PreTrainedConfig, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        config_for(target, 3)


@pytest.mark.parametrize("target", [LlamaConfig(**SHAPE), Qwen2Config(**SHAPE)], ids=["llama", "qwen2"])
def test_engines_read_one_layer_like_the_targets(target: PreTrainedConfig, tmp_path: Path) -> None:
    config = config_for(target, 3)
    (tmp_path / "config.json").write_text(json.dumps(FastMTP().to_json(config)))
    assert FastMTP().read_config(tmp_path) == config
    assert isinstance(recognise(tmp_path), FastMTP)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.architectures == ["EagleFastMTPForCausalLM"]
    assert loaded.num_hidden_layers == 1
    same = ("model_type", "hidden_size", "num_key_value_heads", "intermediate_size", "rms_norm_eps", "rope_parameters")
    assert all(getattr(loaded, name) == getattr(target, name) for name in same)


def test_other_folders_are_no_fastmtp_drafters(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"config\.json is missing"):
        recognise(tmp_path)
    (tmp_path / "config.json").write_text('{"mtpc": {}}')
    assert not isinstance(recognise(tmp_path), FastMTP)
    with pytest.raises(MTPCError, match="no section 'fastmtp', so it does not describe a FastMTP drafter"):
        FastMTP().read_config(tmp_path)
