"""Layout of MiMo-7B checkpoints: XiaomiMiMo/MiMo-7B-RL, and TencentBAC/FastMTP with the same layout.

Both are whole models of 36 layers and one MTP layer. FastMTP's config.json adds settings of its training.

A checkpoint does not state which hidden state of the target the first draft step reads. Later steps read the layer's
output.

- FastMTP reads the state after the target's final norm: the modeling code of its training applies the norm, then the
  layer. Draft layers here do the same.
- Xiaomi's layer reads the state before that norm in vLLM (vllm-project/vllm #17433, by Xiaomi) and in ExLlamaV3
  (turboderp-org/exllamav3 #238). SGLang gives it the state after the norm (sgl-project/sglang #6059, acceptance length
  1.76 with one draft token). Xiaomi's modeling code never calls it.

The two inputs are not equivalent. The layer normalizes its input, which removes the scale of each position, but not the
weights of the target's norm.
"""

from __future__ import annotations

from typing import Any

from mtpc.methods.fastmtp import PREFIX

ARCHITECTURE = "MiMoForCausalLM"

MTP_PREFIX = PREFIX  # the MTP layer's tensors have the same names in a drafter checkpoint
DECODER_LAYER = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.weight",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.weight",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)
MTP_LAYER = (
    "token_layernorm.weight",
    "hidden_layernorm.weight",
    "input_proj.weight",
    *DECODER_LAYER,
    "final_layernorm.weight",
)
# Tensors of the target, which are not converted: the drafter uses those of the served target.
EMBEDDING = "model.embed_tokens.weight"
TRUNK_LAYER = "model.layers.{}."
TRUNK = (EMBEDDING, "model.norm.weight", "lm_head.weight")

# Keys of config.json that define the layer. A drafter's configuration has the same names.
SIZES = (
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
LAYERS = "num_hidden_layers"
EPSILON = "rms_norm_eps"
HEAD_DIM = "head_dim"  # default: hidden_size / num_attention_heads
THETA = "rope_theta"
ROPE = "rope_parameters"  # replaces rope_theta and rope_scaling in files of transformers 5
STEPS = "num_speculative_steps"  # draft tokens that FastMTP was trained for
READ = {*SIZES, LAYERS, EPSILON, HEAD_DIM, THETA, ROPE, STEPS}

# Optional keys with a single supported value.
FIXED: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": True,
    "num_nextn_predict_layers": 1,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
LAYER_TYPES, LAYER_TYPE = "layer_types", "full_attention"  # every layer must have this type

# Keys that do not change what the layer computes.
WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "max_window_layers",  # without effect unless use_sliding_window, as sliding_window
    "model_type",
    "mtp_loss_step_weights",  # FastMTP's training, as the next two
    "mtp_loss_weight",
    "ntp_loss_weight",
    "pad_token_id",
    "sliding_window",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
