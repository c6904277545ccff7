"""The layers of an autoregressive part: from a state and the next token to the next state.

One pre-norm layer is FastMTP's (arXiv 2509.18362, section 2.1). Two layers without the outer norms are Gumiho's
(arXiv 2503.10135, section 3.3, equations 7 to 9).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import Cache, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm, Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm, Qwen3RotaryEmbedding

from mtpc.autoregressive.config import SHARED_KEYS, AutoregressiveConfig
from mtpc.autoregressive.part import AutoregressivePart, DrafterTokens


class LayerClasses(NamedTuple):
    """The transformers classes that a layer is built from.

    Attributes:
        config: Configuration class.
        layer: Decoder layer.
        norm: RMS norm.
        rotary: Rotary embedding.
    """

    config: type
    layer: type[nn.Module]
    norm: type[nn.Module]
    rotary: type[nn.Module]


LAYER_CLASSES = {
    "llama": LayerClasses(LlamaConfig, LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding),
    "qwen2": LayerClasses(Qwen2Config, Qwen2DecoderLayer, Qwen2RMSNorm, Qwen2RotaryEmbedding),
    "qwen3": LayerClasses(Qwen3Config, Qwen3DecoderLayer, Qwen3RMSNorm, Qwen3RotaryEmbedding),
}


class DraftLayers(AutoregressivePart):
    """Decoder layers behind a projection of the previous state and the token's embedding.

    All draft steps share the weights.

    Attributes:
        config: Sizes and layer type.
        blocks: The decoder layers.
        own: Embedding and output head that are not the target's, or None.
    """

    def __init__(self, config: AutoregressiveConfig) -> None:
        super().__init__()
        self.config = config
        self.parts = LAYER_CLASSES[config.layer]
        size = config.hidden_size
        self.token_layernorm, self.hidden_layernorm = self._norm(), self._norm()
        self.input_proj = nn.Linear(2 * size, size, bias=not config.normed)
        layers = config.num_hidden_layers
        self.blocks = nn.ModuleList(self.parts.layer(self._layer_config(), layer_idx=i) for i in range(layers))
        if not config.normed:
            self.blocks[0].input_layernorm = nn.Identity()
        self.final_layernorm = self._norm()
        self.own = DrafterTokens.of(config)
        # Not a submodule: conversion to bfloat16 would round the frequencies.
        self._rotary: dict[torch.device, Any] = {}

    def _norm(self) -> nn.Module:
        """Return one of the outer norms."""
        if not self.config.normed:
            return nn.Identity()
        return self.parts.norm(self.config.hidden_size, self.config.rms_norm_eps)

    def _layer_config(self) -> Any:
        values = {key: getattr(self.config, key) for key in SHARED_KEYS}
        return self.parts.config(attn_implementation="sdpa", **values)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines of positions int64 [B, T], in the dtype of ``x``: [B, T, head_dim] each."""
        if x.device not in self._rotary:
            self._rotary[x.device] = self.parts.rotary(self._layer_config()).to(x.device)
        cosine, sine = self._rotary[x.device](x, positions)
        return cosine, sine

    def inputs(self, embeddings: Tensor, previous: Tensor) -> Tensor:
        """Project cat(state, embedding), each normed where the configuration has norms."""
        both = torch.cat([self.hidden_layernorm(previous), self.token_layernorm(embeddings)], -1)
        z: Tensor = self.input_proj(both)
        return z

    def forward(
        self,
        embeddings: Tensor,
        previous: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """See `AutoregressivePart.forward`; the states are those after the final norm, where there is one."""
        z = self.inputs(embeddings, previous)
        rotary = self.rotary(z, positions)
        for block in self.blocks:
            z = block(
                z,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=cache is not None,
                position_embeddings=rotary,
            )
        out: Tensor = self.final_layernorm(z)
        return out
