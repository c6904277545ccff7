"""Small random checkpoints in the layout of MiMo-7B-RL and FastMTP: a Qwen2 trunk and one MTP layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.support.tiny_models import SIZE, VOCAB

# The configuration that both publish, with smaller sizes, and the further keys of FastMTP's.
MIMO: dict[str, Any] = {
    "architectures": ["MiMoForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_mimo.MiMoConfig",
        "AutoModel": "modeling_mimo.MiMoModel",
        "AutoModelForCausalLM": "modeling_mimo.MiMoForCausalLM",
    },
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 8,  # 4 heads of 8 are wider than the hidden size, so that the two cannot be taken for each other
    "hidden_act": "silu",
    "hidden_size": SIZE,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 32768,
    "max_window_layers": 36,
    "model_type": "mimo",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 640000,
    "sliding_window": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}
FASTMTP: dict[str, Any] = {
    **MIMO,
    "layer_types": ["full_attention"] * 2,
    "mtp_loss_step_weights": [0.51, 0.31, 0.18],
    "mtp_loss_weight": 1.0,
    "ntp_loss_weight": 0.0,
    "num_speculative_steps": 3,
    "pad_token_id": 151643,
}


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a whole checkpoint."""
    size, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, groups = (config[f"num_{name}_heads"] * config["head_dim"] for name in ("attention", "key_value"))
    decoder: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (size,),
        "self_attn.q_proj.weight": (heads, size),
        "self_attn.q_proj.bias": (heads,),
        "self_attn.k_proj.weight": (groups, size),
        "self_attn.k_proj.bias": (groups,),
        "self_attn.v_proj.weight": (groups, size),
        "self_attn.v_proj.bias": (groups,),
        "self_attn.o_proj.weight": (size, heads),
        "post_attention_layernorm.weight": (size,),
        "mlp.gate_proj.weight": (inner, size),
        "mlp.up_proj.weight": (inner, size),
        "mlp.down_proj.weight": (size, inner),
    }
    mtp: dict[str, tuple[int, ...]] = {
        "token_layernorm.weight": (size,),
        "hidden_layernorm.weight": (size,),
        "input_proj.weight": (size, 2 * size),
        "final_layernorm.weight": (size,),
        **decoder,
    }
    layers = range(config["num_hidden_layers"])
    return {
        "model.embed_tokens.weight": (vocab, size),
        **{f"model.layers.{i}.{name}": shape for i in layers for name, shape in decoder.items()},
        "model.norm.weight": (size,),
        **{f"model.mtp_layers.0.{name}": shape for name, shape in mtp.items()},
        "lm_head.weight": (vocab, size),
    }


def random_weights(config: dict[str, Any] = MIMO, seed: int = 0) -> dict[str, Tensor]:
    """All tensors of a checkpoint, bfloat16, large enough that every part matters."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(shape, generator=generator) * 0.4 + (1.0 if "norm" in name else 0.0)).bfloat16()
        for name, shape in shapes(config).items()
    }


def write_checkpoint(
    folder: Path, config: dict[str, Any], weights: dict[str, Tensor] | None = None, shards: int = 3
) -> dict[str, Tensor]:
    """Write a checkpoint folder, in one file or in shards with an index, and return its tensors."""
    weights = random_weights(config) if weights is None else weights
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return weights
    # The MTP layer's tensors fall into all shards.
    files = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(weights)}
    for file in sorted(set(files.values())):
        save_file({name: weights[name] for name in weights if files[name] == file}, folder / file)
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return weights
