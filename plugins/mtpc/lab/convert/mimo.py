"""What the checkpoints of MiMo-7B hold: XiaomiMiMo/MiMo-7B-RL, and TencentBAC/FastMTP, which has the same layout.

Both are whole models with one MTP layer beside the 36 of the trunk.  FastMTP's config.json adds how it was trained.

What the layer's first step reads of the target is not in a checkpoint.  FastMTP's: the state after the target's final
norm (the modelling code of its training applies the norm and then the layer), which is what a draft layer here reads.
Xiaomi's own: the state before that norm, in vLLM's model by Xiaomi (vllm-project/vllm #17433: the trunk returns its
residual stream, the norm is left to the logits) and in ExLlamaV3 (turboderp-org/exllamav3 #238); SGLang gives it the
state after the norm (sgl-project/sglang #6059, 1.76 tokens a step with one draft); Xiaomi's modelling code never calls
it.  The layer's own norm of the state takes away the scale but not the weights of the target's norm, so the two differ,
and no weights of the layer make them equal: the scale is each position's own.  Later steps read the layer's own output.
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
# The trunk's, which are left where they are: the drafter uses those of the target that is served.
EMBEDDING = "model.embed_tokens.weight"
TRUNK_LAYER = "model.layers.{}."
TRUNK = (EMBEDDING, "model.norm.weight", "lm_head.weight")

# Keys of config.json that the layer is built from, by the names that the drafter's own section has for them.
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
HEAD_DIM = "head_dim"  # where it is missing: hidden_size / num_attention_heads
THETA = "rope_theta"
ROPE = "rope_parameters"  # in place of rope_theta and rope_scaling, where transformers 5 has written the file
STEPS = "num_speculative_steps"  # that FastMTP was trained for
READ = {*SIZES, LAYERS, EPSILON, HEAD_DIM, THETA, ROPE, STEPS}

# Keys that may be left out, but that have one value only where they are there.
FIXED: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": True,
    "num_nextn_predict_layers": 1,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
LAYER_TYPES, LAYER_TYPE = "layer_types", "full_attention"  # of every layer

# Keys that say nothing of what the layer computes.
WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "max_window_layers",  # of sliding windows, as the next
    "model_type",
    "mtp_loss_step_weights",  # of FastMTP's training, as the next two
    "mtp_loss_weight",
    "ntp_loss_weight",
    "pad_token_id",
    "sliding_window",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
