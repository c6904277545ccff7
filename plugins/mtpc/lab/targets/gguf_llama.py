"""Conversion of a Llama in a GGUF file to transformers: dequantized weights and configuration.

llama.cpp stores the rows of query and key projections in the order of its rotary embedding, which pairs rows 2i and
2i + 1 of a head. transformers pairs row i with row i + head_dim / 2, so both matrices are reordered. All other tensors
are only renamed.

transformers reads such files too (``from_pretrained(gguf_file=...)``), with equal weights. Its reader is not used here,
because in release 5.19 it

- needs the package accelerate, which environments for serving do not hold;
- cannot save what it has read ("quantized with QuantizationMethod.GGUF and is not serializable");
- ignores what it does not know: scaled rotary embeddings are read as plain ones, missing tensors become random numbers,
  additional tensors are dropped. Each of these is an error here;
- does not round float32 metadata: an epsilon of 1e-05 becomes 9.999999747378752e-06.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from mtpc.errors import MTPCError, first_line

# Tensor names of llama.cpp and of transformers; {} is the number of the layer.
OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}


class GGUFFile:
    """Open GGUF file with its metadata and tensors.

    Args:
        path: Path of the file.

    Raises:
        MTPCError: The file is missing or is not GGUF, or the package gguf is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGUFReader
        except ImportError:
            raise MTPCError("reading a GGUF file needs the package gguf: pip install gguf.") from None
        if not path.is_file():
            raise MTPCError(f"{path} is missing.")
        try:
            self._reader = GGUFReader(path)
        except Exception as error:  # a damaged file can raise any exception
            raise MTPCError(f"{path} is damaged or not a GGUF file: {first_line(error)}.") from None
        self.path = path

    def field(self, key: str, default: Any = None) -> Any:
        """Return a value of the file's metadata.

        Args:
            key: Name of the field.
            default: Value if the field is missing. None makes a missing field an error.

        Raises:
            MTPCError: The field is missing and there is no default.
        """
        field = self._reader.get_field(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise MTPCError(f"{self.path} has no field {key!r}.")
        return default

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, dequantized to float32, by llama.cpp's names."""
        from gguf import dequantize

        return {
            tensor.name: torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
            for tensor in self._reader.tensors
        }


def llama_config(file: GGUFFile, tied: bool) -> LlamaConfig:
    """Return the configuration of the model for transformers.

    Args:
        file: GGUF file of a Llama.
        tied: Whether the output head is the embedding.

    Raises:
        MTPCError: The model is not a Llama, or has a scaled rotary embedding.
    """
    architecture = file.field("general.architecture")
    if architecture != "llama":
        raise MTPCError(f"{file.path} holds a model of architecture {architecture!r}, but 'llama' was expected.")
    scaling = file.field("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise MTPCError(f"{file.path} scales its rotary embedding ({scaling!r}), which is not supported.")
    heads, size = file.field("llama.attention.head_count"), file.field("llama.embedding_length")
    return LlamaConfig(
        vocab_size=len(file.field("tokenizer.ggml.tokens")),
        hidden_size=size,
        intermediate_size=file.field("llama.feed_forward_length"),
        num_hidden_layers=file.field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=file.field("llama.attention.head_count_kv", heads),
        head_dim=file.field("llama.attention.key_length", size // heads),
        max_position_embeddings=file.field("llama.context_length"),
        rope_theta=shortest_decimal(file.field("llama.rope.freq_base", 10_000.0)),
        rms_norm_eps=shortest_decimal(file.field("llama.attention.layer_norm_rms_epsilon")),
        tie_word_embeddings=tied,
        bos_token_id=file.field("tokenizer.ggml.bos_token_id"),
        eos_token_id=file.field("tokenizer.ggml.eos_token_id"),
        pad_token_id=file.field("tokenizer.ggml.padding_token_id", file.field("tokenizer.ggml.eos_token_id")),
    )


def shortest_decimal(value: float) -> float:
    """Return the shortest decimal number that rounds to this float32: 1e-05 for 9.99999974737875e-06."""
    return float(str(np.float32(value)))


def rotate_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a query or key projection, [heads * head_dim, d], from llama.cpp's order to transformers'.

    Row 2i + j of a head (j = 0, 1) becomes row j * head_dim / 2 + i.
    """
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def to_transformers(file: GGUFFile) -> LlamaForCausalLM:
    """Return the model of a GGUF file in float32.

    Args:
        file: GGUF file of a Llama.

    Raises:
        MTPCError: As `llama_config`, or a tensor is missing or unknown.
    """
    tensors = file.tensors()
    config = llama_config(file, tied="output.weight" not in tensors)
    names = {name: OUTER[name] for name in OUTER if name != "output.weight" or not config.tie_word_embeddings}
    for layer in range(config.num_hidden_layers):
        names |= {ours.format(layer): theirs.format(layer) for ours, theirs in LAYER.items()}
    for name in names.keys() - tensors.keys():
        raise MTPCError(f"{file.path}: the tensor {name!r} is missing.")
    for name in tensors.keys() - names.keys():
        raise MTPCError(f"{file.path}: the tensor {name!r} is unknown to a Llama.")
    weights = {names[name]: weight for name, weight in tensors.items()}
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            weights[name] = rotate_halves(weight, config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            weights[name] = rotate_halves(weight, config.num_key_value_heads)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu")
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    return model
