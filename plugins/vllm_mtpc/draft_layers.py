"""The autoregressive part of a drafter, built from vLLM's layers: sharded over ranks, compiled, with paged KV cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.models.llama import LlamaDecoderLayer
from vllm.model_executor.models.qwen2 import Qwen2DecoderLayer
from vllm.model_executor.models.qwen3 import Qwen3DecoderLayer
from vllm.model_executor.models.utils import WeightsMapper

from mtpc.autoregressive.config import AutoregressiveConfig, LayersConfig
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.autoregressive.part import DrafterTokens
from vllm_mtpc.adapted_layers import VLLMAdaptedLayers

STACKED = WeightsMapper(
    orig_to_new_stacked={  # vLLM fuses these matrices
        ".q_proj": (".qkv_proj", "q"),
        ".k_proj": (".qkv_proj", "k"),
        ".v_proj": (".qkv_proj", "v"),
        ".gate_proj": (".gate_up_proj", 0),
        ".up_proj": (".gate_up_proj", 1),
    }
)
QWEN = {"qwen2": Qwen2DecoderLayer, "qwen3": Qwen3DecoderLayer}


class LlamaBlock(LlamaDecoderLayer):
    """Llama decoder layer that is not quantized, even if the target is."""

    def get_quant_config(self, vllm_config: Any) -> None:
        """Return None instead of the target's quantization."""


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "hidden_states": 0})
class VLLMDraftLayers(nn.Module):
    """`mtpc.autoregressive.layer.DraftLayers` built from vLLM's layers.

    Attributes:
        embed_tokens: The drafter's embedding if it has one, else the target's, which vLLM assigns after loading.
    """

    embed_tokens: Any

    def __init__(self, *, vllm_config: Any, autoregressive: AutoregressiveConfig, prefix: str = "") -> None:
        super().__init__()
        size, self.normed = autoregressive.hidden_size, autoregressive.normed
        self.own = DrafterTokens.of(autoregressive)
        if self.own is not None and self.own.embedding is not None:
            self.embed_tokens = self.own.embedding
        self.token_layernorm, self.hidden_layernorm, self.final_layernorm = (
            RMSNorm(size, eps=autoregressive.rms_norm_eps) if autoregressive.normed else nn.Identity() for _ in range(3)
        )
        self.input_proj = ReplicatedLinear(
            2 * size,
            size,
            bias=not autoregressive.normed,
            params_dtype=vllm_config.model_config.dtype,
            prefix=f"{prefix}.input_proj",
            return_bias=False,
        )
        # Layer numbers continue after the target's last layer: vLLM names KV caches by them.
        first = vllm_config.model_config.get_total_num_hidden_layers()
        names = (f"{prefix}.layers.{first + number}" for number in range(autoregressive.num_hidden_layers))
        config = vllm_config.speculative_config.draft_model_config.hf_config
        if autoregressive.layer == "llama":
            self.blocks = nn.ModuleList(LlamaBlock(vllm_config, prefix=name, config=config) for name in names)
        else:
            layer, cache = QWEN[autoregressive.layer], vllm_config.cache_config
            self.blocks = nn.ModuleList(layer(config, cache, prefix=name) for name in names)
        if not autoregressive.normed:
            self.blocks[0].input_layernorm = nn.Identity()

    def inputs(self, input_ids: Tensor, hidden_states: Tensor) -> Tensor:
        """Return the input of the first layer, [T, d]; see `forward`."""
        embeddings = self.token_layernorm(self.embed_tokens(input_ids))
        z: Tensor = self.input_proj(torch.cat([self.hidden_layernorm(hidden_states), embeddings], -1))
        return z

    def forward(self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Run one draft step.

        Args:
            input_ids: [T], the token after each position.
            positions: int64 [T].
            hidden_states: [T, d], the state at each position: the target's in the first draft step (see
                `TargetInterface.state_below`), this module's output in later ones.

        Returns:
            The states after the final norm, [T, d].
        """
        z, residual = self.blocks[0](positions, self.inputs(input_ids, hidden_states), None)
        for block in self.blocks[1:]:
            z, residual = block(positions, z, residual)
        out: Tensor = self.final_layernorm(z, residual)[0] if self.normed else z + residual
        return out


def draft_layers(vllm_config: Any, autoregressive: LayersConfig, prefix: str) -> VLLMDraftLayers | VLLMAdaptedLayers:
    """Return the untrained layers of an autoregressive part.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        autoregressive: The part's configuration.
        prefix: Name of the module.
    """
    if isinstance(autoregressive, LoRALayersConfig):
        return VLLMAdaptedLayers(vllm_config=vllm_config, lora=autoregressive, prefix=prefix)
    assert isinstance(autoregressive, AutoregressiveConfig)  # the only other kind of layers
    return VLLMDraftLayers(vllm_config=vllm_config, autoregressive=autoregressive, prefix=prefix)
