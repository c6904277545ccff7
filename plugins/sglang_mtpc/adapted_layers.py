"""The target's last layers with LoRA adapters: the target's own modules, with slots of the draft model's KV cache."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.runtime_context import get_parallel
from torch import Tensor, nn

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.fused_adapters import (
    AdaptedProjection,
    FusedAdapter,
    LayerRanks,
    fused_adapters,
    load_fused,
)
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.errors import MTPCError
from sglang_mtpc.target_modules import target_module


class SGLangAdaptedBlock(nn.Module):
    """A decoder layer of the target with adapters.

    Protocol: `share` must follow once the target is loaded.

    The norms are this module's, with the target's weights: those of a quantized target may return quantized states,
    which adapters do not read.

    Args:
        lora: The adapted layers.
        number: Index of the layer in the draft model's KV cache.

    Attributes:
        attn: Attention with keys and values of its own.
        adapters: See `fused_adapters`.
        self_attn: The attention module of the target's layer, with adapted projections and `attn`.
        act_fn: The activation of the target's MLP.
    """

    self_attn: Any
    act_fn: Any

    def __init__(self, lora: LoRALayersConfig, number: int) -> None:
        super().__init__()
        parallel = get_parallel()
        self.ranks = LayerRanks(parallel.tp_rank, parallel.tp_size, parallel.tp_group.all_reduce)
        self.attn = RadixAttention(
            lora.num_attention_heads // parallel.tp_size,
            lora.head_dim,
            lora.head_dim**-0.5,
            num_kv_heads=max(1, lora.num_key_value_heads // parallel.tp_size),
            layer_id=number,
            prefix=f"blocks.{number}.self_attn.attn",
        )
        self.input_layernorm, self.post_attention_layernorm = (
            RMSNorm(lora.hidden_size, eps=lora.rms_norm_eps) for _ in range(2)
        )
        self.adapters = fused_adapters(lora, self.ranks)

    def share(self, layer: Any) -> None:
        """Use the projections, rotary embedding and weights of the norms of the target's layer.

        Args:
            layer: SGLang's decoder layer.
        """
        for name in ("input_layernorm", "post_attention_layernorm"):
            getattr(self, name).weight = getattr(layer, name).weight
        self.self_attn = copy(layer.self_attn)
        self.self_attn._modules = dict(layer.self_attn._modules) | {"attn": self.attn}
        for name in ("qkv_proj", "o_proj"):
            setattr(self.self_attn, name, self._adapted(name, getattr(layer.self_attn, name)))
        self.gate_up_proj, self.down_proj = (
            self._adapted(name, getattr(layer.mlp, name)) for name in ("gate_up_proj", "down_proj")
        )
        self.act_fn = layer.mlp.act_fn

    def _adapted(self, name: str, base: Any) -> AdaptedProjection:
        """Return a projection with its adapter, summed over ranks where SGLang's decoder layer does so later."""
        adapter = cast("FusedAdapter", self.adapters[name]) if name in self.adapters else None
        reduces = self.ranks.size > 1 and not getattr(base, "reduce_results", True)
        return AdaptedProjection(base, adapter, self.ranks.reduce if reduces else None)

    def forward(
        self, positions: Tensor, z: Tensor, residual: Tensor | None, forward_batch: Any
    ) -> tuple[Tensor, Tensor]:
        """Return output and residual of the layer, [T, d] each, from those of the preceding layer."""
        read, residual = (self.input_layernorm(z), z) if residual is None else self.input_layernorm(z, residual)
        attended = self.self_attn(positions=positions, hidden_states=read, forward_batch=forward_batch)
        read, residual = self.post_attention_layernorm(attended, residual)
        return self._mlp(read), cast("Tensor", residual)

    def _mlp(self, x: Tensor) -> Tensor:
        gate_up, _ = self.gate_up_proj(x)
        out: Tensor = self.down_proj(self.act_fn(gate_up))[0]
        return out

    def timed_pass(self, z: Tensor) -> None:
        """Run the layer without attention, to time it; z: [n, d]."""
        qkv, _ = self.self_attn.qkv_proj(z)
        self.self_attn.o_proj(qkv[:, : self.self_attn.q_size].contiguous())
        self._mlp(z)


class SGLangAdaptedLayers(nn.Module):
    """`mtpc.autoregressive.adapted_layers.AdaptedLayers` built from the target's modules in SGLang.

    Protocol: `load` the adapters and `share` the target's layers before the first `forward`.

    Args:
        lora: The adapted layers.

    Attributes:
        embed_tokens: The target's embedding, set by `DraftLayersModel.share`.  The layers do not read it.
        own: None: the layers bring no embedding and no output head.
    """

    embed_tokens: Any
    own = None

    def __init__(self, lora: LoRALayersConfig) -> None:
        super().__init__()
        self.lora = lora
        self.blocks = nn.ModuleList(SGLangAdaptedBlock(lora, number) for number in range(lora.num_hidden_layers))
        self.norm = RMSNorm(lora.hidden_size, eps=lora.rms_norm_eps)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the states."""
        return self.norm.weight.dtype

    def load(self, part: AdaptedLayers) -> None:
        """Copy this rank's share of the adapters.

        Args:
            part: The adapted layers of the checkpoint.
        """
        load_fused((cast("SGLangAdaptedBlock", block).adapters for block in self.blocks), part)

    def share(self, target: Any) -> None:
        """Use the last layers and the final norm of the target.

        Args:
            target: SGLang's model of the target.

        Raises:
            MTPCError: It has no language model, or its layers are not decoder layers with these projections.
        """
        model = target_module(target, "model")
        layers = getattr(model, "layers", ())
        last = [layers[number] for number in self.lora.layer_numbers] if len(layers) == self.lora.target_layers else []
        if not last or not all(_is_plain(layer) for layer in last):
            raise MTPCError(
                f"LoRA adapters need {self.lora.target_layers} dense layers of type {self.lora.layer}, which SGLang's "
                f"{type(target).__name__} does not have."
            )
        self.norm.weight = model.norm.weight
        for block, layer in zip(self.blocks, last, strict=True):
            cast("SGLangAdaptedBlock", block).share(layer)

    def inputs(self, input_ids: Tensor, previous: Tensor) -> Tensor:
        """Return the target's embeddings of the tokens, [T, d], see `AdaptedLayers.inputs`."""
        embeddings: Tensor = self.embed_tokens(input_ids)
        return embeddings

    def timed_pass(self, states: Tensor) -> None:
        """Run a pass without attention on dummy tokens, to time it; states: [n, d]."""
        for block in self.blocks:
            cast("SGLangAdaptedBlock", block).timed_pass(states)

    def forward(self, input_ids: Tensor, positions: Tensor, previous: Tensor, forward_batch: Any) -> Tensor:
        """Return the states after the target's final norm, [T, d], see `AdaptedLayers.forward`."""
        z, residual = previous.to(self.dtype), None
        for block in self.blocks:
            z, residual = block(positions, z, residual, forward_batch)
        out: Tensor = self.norm(z, residual)[0]
        return out


def _is_plain(layer: Any) -> bool:
    """Return whether a layer has the projections that adapters are for."""
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    named = all(hasattr(attention, name) for name in ("qkv_proj", "o_proj", "attn", "q_size"))
    return named and all(hasattr(mlp, name) for name in ("gate_up_proj", "down_proj", "act_fn"))
