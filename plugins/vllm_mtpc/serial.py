"""The serial part of a drafter in vLLM's layers: sharded over ranks, compiled, with keys and values in vLLM's pages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.models.llama import LlamaDecoderLayer
from vllm.model_executor.models.qwen2 import Qwen2DecoderLayer
from vllm.model_executor.models.utils import WeightsMapper

from mtpc.serial.config import SerialConfig

STACKED = WeightsMapper(
    orig_to_new_stacked={  # vLLM keeps these matrices as one
        ".q_proj": (".qkv_proj", "q"),
        ".k_proj": (".qkv_proj", "k"),
        ".v_proj": (".qkv_proj", "v"),
        ".gate_proj": (".gate_up_proj", 0),
        ".up_proj": (".gate_up_proj", 1),
    }
)


class LlamaBlock(LlamaDecoderLayer):
    """A drafter is not quantised, whatever the target is."""

    def get_quant_config(self, vllm_config: Any) -> None:
        """Overrides the choice of the target's quantisation."""


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "hidden_states": 0})
class SerialPart(nn.Module):
    """`mtpc.serial.layer.SerialLayer` of vLLM's layers.  ``embed_tokens`` is the target's; vLLM puts it here."""

    embed_tokens: Any

    def __init__(self, *, vllm_config: Any, serial: SerialConfig, prefix: str = "") -> None:
        super().__init__()
        size, eps = serial.hidden_size, serial.rms_norm_eps
        self.token_layernorm = RMSNorm(size, eps=eps)
        self.hidden_layernorm = RMSNorm(size, eps=eps)
        self.input_proj = ReplicatedLinear(
            2 * size,
            size,
            bias=False,
            params_dtype=vllm_config.model_config.dtype,
            prefix=f"{prefix}.input_proj",
            return_bias=False,
        )
        # The name, with the number after the target's last layer, is that of the layer's own KV cache.
        name = f"{prefix}.layers.{vllm_config.model_config.get_total_num_hidden_layers()}"
        config = vllm_config.speculative_config.draft_model_config.hf_config
        if serial.layer == "llama":
            self.block = LlamaBlock(vllm_config, prefix=name, config=config)
        else:
            self.block = Qwen2DecoderLayer(config, vllm_config.cache_config, prefix=name)
        self.final_layernorm = RMSNorm(size, eps=eps)

    def forward(self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """The states after one step, [T, d].

        input_ids: [T], the token after each position.  positions: int64 [T].  hidden_states: [T, d], of the position:
        the target's after its final norm in the first step, this layer's own output after that.
        """
        embeddings = self.token_layernorm(self.embed_tokens(input_ids))
        z = self.input_proj(torch.cat([self.hidden_layernorm(hidden_states), embeddings], -1))
        z, residual = self.block(positions, z, None)
        out, _ = self.final_layernorm(z, residual)
        return out
