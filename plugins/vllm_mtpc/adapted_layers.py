"""The target's last layers with LoRA adapters: the target's own modules, with KV cache pages of their own."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_reduce,
)
from vllm.model_executor.layers.attention import Attention

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.autoregressive.fused_adapters import AdaptedProjection, LayerRanks, fused_adapters, load_fused
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.errors import MTPCError
from vllm_mtpc.lora import without_lora


class VLLMAdaptedBlock(nn.Module):
    """A decoder layer of the target with adapters.

    Protocol: `share` must follow once the target is loaded.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        lora: The adapted layers.
        prefix: Name of the layer; its number must differ from those of the target's layers.

    Attributes:
        attn: Attention with keys and values of its own.
        adapters: See `fused_adapters`.
        base: The target's layer.
        self_attn: The attention module of the target's layer, with adapted projections and `attn`.
    """

    base: Any
    self_attn: Any

    def __init__(self, vllm_config: Any, lora: LoRALayersConfig, prefix: str) -> None:
        super().__init__()
        ranks = get_tensor_model_parallel_world_size()
        self.attn = Attention(
            lora.num_attention_heads // ranks,
            lora.head_dim,
            lora.head_dim**-0.5,
            num_kv_heads=max(1, lora.num_key_value_heads // ranks),
            cache_config=vllm_config.cache_config,
            prefix=f"{prefix}.self_attn.attn",
        )
        of = LayerRanks(get_tensor_model_parallel_rank(), ranks, tensor_model_parallel_all_reduce)
        self.adapters = fused_adapters(lora, of)

    def share(self, layer: Any) -> None:
        """Use the projections, norms and rotary embedding of the target's layer.

        Args:
            layer: vLLM's decoder layer.
        """
        self.base, self.self_attn = layer, copy(layer.self_attn)
        self.self_attn._modules = dict(layer.self_attn._modules) | {"attn": self.attn}
        for name in ("qkv_proj", "o_proj"):
            setattr(self.self_attn, name, self._adapted(name, layer.self_attn))
        self.gate_up_proj, self.down_proj = (self._adapted(name, layer.mlp) for name in ("gate_up_proj", "down_proj"))

    def _adapted(self, name: str, module: Any) -> nn.Module:
        base = without_lora(getattr(module, name))
        if name not in self.adapters:
            return base
        return AdaptedProjection(base, cast("Any", self.adapters[name]))

    def forward(self, positions: Tensor, z: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return output and residual of the layer, [T, d] each, from those of the preceding layer."""
        base = self.base
        read, residual = (base.input_layernorm(z), z) if residual is None else base.input_layernorm(z, residual)
        attended = self.self_attn(positions=positions, hidden_states=read)
        read, residual = base.post_attention_layernorm(attended, residual)
        gate_up, _ = self.gate_up_proj(read)
        out, _ = self.down_proj(base.mlp.act_fn(gate_up))
        return out, residual


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "hidden_states": 0})
class VLLMAdaptedLayers(nn.Module):
    """`mtpc.autoregressive.adapted_layers.AdaptedLayers` built from the target's modules in vLLM.

    Protocol: `load` the adapters and `share` the target's layers before the first `forward`.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        lora: The adapted layers.
        prefix: Name of the module.

    Attributes:
        embed_tokens: The target's embedding, which vLLM assigns after loading.  The layers do not read it.
        own: None: the layers bring no embedding and no output head.
    """

    embed_tokens: Any
    norm: Any
    own = None

    def __init__(self, *, vllm_config: Any, lora: LoRALayersConfig, prefix: str = "") -> None:
        super().__init__()
        self.lora = lora
        # Layer numbers continue after the target's last layer: vLLM names KV caches by them.
        names = (f"{prefix}.layers.{lora.target_layers + number}" for number in range(lora.num_hidden_layers))
        self.blocks = nn.ModuleList(VLLMAdaptedBlock(vllm_config, lora, name) for name in names)

    def load(self, part: AdaptedLayers) -> None:
        """Copy this rank's share of the adapters.

        Args:
            part: The adapted layers of the checkpoint.
        """
        load_fused((cast("VLLMAdaptedBlock", block).adapters for block in self.blocks), part)

    def share(self, target: Any) -> None:
        """Use the last layers and the final norm of the target.

        Args:
            target: vLLM's model of the target.

        Raises:
            MTPCError: Its layers are not decoder layers with these projections.
        """
        language_model = target.get_language_model() if hasattr(target, "get_language_model") else target
        decoder = language_model.model
        layers = getattr(decoder, "layers", ())
        last = [layers[number] for number in self.lora.layer_numbers] if len(layers) == self.lora.target_layers else []
        if not last or not all(_is_plain(layer) for layer in last) or not hasattr(decoder, "norm"):
            raise MTPCError(
                f"LoRA adapters need {self.lora.target_layers} dense layers of type {self.lora.layer}, which vLLM's "
                f"{type(language_model).__name__} does not have."
            )
        self.norm = decoder.norm
        for block, layer in zip(self.blocks, last, strict=True):
            cast("VLLMAdaptedBlock", block).share(layer)

    def inputs(self, input_ids: Tensor, hidden_states: Tensor) -> Tensor:
        """Return the target's embeddings of the tokens, [T, d], see `AdaptedLayers.inputs`."""
        embeddings: Tensor = self.embed_tokens(input_ids)
        return embeddings

    def forward(self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Run the layers.

        Args:
            input_ids: Not read.
            positions: int64 [T].
            hidden_states: [T, d], the target's states below the adapted layers.

        Returns:
            The states after the target's final norm, [T, d].
        """
        z, residual = hidden_states, None
        for block in self.blocks:
            z, residual = block(positions, z, residual)
        out: Tensor = self.norm(z, residual)[0]
        return out


def _is_plain(layer: Any) -> bool:
    """Return whether a layer has the projections that adapters are for."""
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    named = all(hasattr(attention, name) for name in ("qkv_proj", "o_proj", "attn"))
    return named and all(hasattr(mlp, name) for name in ("gate_up_proj", "down_proj", "act_fn"))
