"""The class that vLLM's model loader builds for a FastMTP drafter directory, run by vLLM's own draft loop."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.llama import LlamaDecoderLayer
from vllm.model_executor.models.qwen2 import Qwen2DecoderLayer
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

from mtpc.errors import MTPCError
from mtpc.fastmtp.directory import load_layer
from mtpc.vocabulary.logits import DraftLogits, draw_tokens
from mtpc.vocabulary.settings import open_vocabularies
from vllm_mtpc.settings import target_of, vocabulary_values

STACKED = {  # vLLM keeps these matrices as one
    ".q_proj": (".qkv_proj", "q"),
    ".k_proj": (".qkv_proj", "k"),
    ".v_proj": (".qkv_proj", "v"),
    ".gate_proj": (".gate_up_proj", 0),
    ".up_proj": (".gate_up_proj", 1),
}
logger = logging.getLogger(f"vllm.{__name__}")


class LlamaBlock(LlamaDecoderLayer):
    """A drafter is not quantised, whatever the target is."""

    def get_quant_config(self, vllm_config: Any) -> None:
        """Overrides the choice of the target's quantisation."""


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "hidden_states": 0})
class FastMTPModel(nn.Module):
    """`mtpc.fastmtp.layer.MTPLayer` in vLLM's layers, with keys and values in vLLM's pages.

    ``embed_tokens`` is the target's; vLLM puts it here.
    """

    embed_tokens: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.speculative_config.draft_model_config.hf_config
        size, eps = config.hidden_size, config.rms_norm_eps
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
        if config.fastmtp["layer"] == "llama":
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


class EagleFastMTPForCausalLM(nn.Module):
    """A FastMTP drafter with the target's embedding and output head.

    vLLM shares both with a model that does not say that it has its own.  maps: int64, the number of the draft
    vocabulary of each row whose logits are asked for next; None: the first for all.
    """

    lm_head: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        draft, target = vllm_config.speculative_config.draft_model_config, vllm_config.model_config
        self.config = draft.hf_config
        self.folder = Path(draft.model)
        self.target = target_of(target)
        self.model = FastMTPModel(vllm_config=vllm_config, prefix=f"{prefix}.model" if prefix else "model")
        self.logits_processor = LogitsProcessor(self.target.vocab_size)
        values = vocabulary_values(vllm_config.additional_config)
        self.vocabularies = open_vocabularies(values, self.folder, self.target.vocab_size)
        self.draft_logits: DraftLogits | None = None
        self.maps: Tensor | None = None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the directory strictly; vLLM's own iterator over its tensors would not see what is missing.

        Returns the names of all tensors.  Errors: `MTPCError`, see `mtpc.fastmtp.directory.load_layer`.
        """
        layer = load_layer(self.folder, self.target)
        named = ((f"model.{name}", tensor) for name, tensor in layer.state_dict().items())
        loaded: set[str] = AutoWeightsLoader(self).load_weights(
            named, mapper=WeightsMapper(orig_to_new_stacked=STACKED)
        )
        return loaded

    def gather_rows(self, static: bool) -> None:
        """Gather the output head's rows of the draft vocabularies, once the head is shared; whole on every rank.

        static: see `DraftLogits`.  Errors: `MTPCError` for a head whose rows are no plain numbers.
        """
        if self.vocabularies is None:
            return
        weight = getattr(self.lm_head, "weight", None)
        if weight is None or not weight.is_floating_point() or weight.shape[-1] != self.target.hidden_size:
            raise MTPCError(
                "a draft vocabulary needs an output head that is not quantised; set its language to 'none'."
            )
        head = tensor_model_parallel_all_gather(weight.data, dim=0)[: self.target.vocab_size]
        self.draft_logits = DraftLogits(self.vocabularies, head, static=static)
        logger.info("FastMTP: %s.", self.draft_logits.summary)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Embeddings of tokens: int [T] -> [T, d]."""
        embeddings: Tensor = self.model.embed_tokens(input_ids)
        return embeddings

    def forward(
        self, input_ids: Tensor, positions: Tensor, hidden_states: Tensor, inputs_embeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The states [T, d] that the logits are made of, and those that go into the next step: the same."""
        if inputs_embeds is not None:
            raise RuntimeError("a FastMTP drafter reads tokens, not embeddings of other inputs")
        states = self.model(input_ids, positions, hidden_states)
        return states, states

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Logits over the target's vocabulary, [n, V]; -inf for a token that cannot be drafted."""
        if self.draft_logits is None:
            logits: Tensor = self.logits_processor(self.lm_head, hidden_states)
            return logits
        return self.draft_logits(hidden_states, self._maps(hidden_states)).to(self.logits_processor.head_dtype)

    def get_top_tokens(self, hidden_states: Tensor) -> Tensor:
        """The most probable tokens, int64 [n], of states [n, d]."""
        if self.draft_logits is None:
            return self.compute_logits(hidden_states).argmax(-1)
        return self.draft_logits.greedy(hidden_states, self._maps(hidden_states))

    def draw_tokens(self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Drawn tokens, int64 [n], and the probabilities that they were drawn from, float32 [n, V].

        hidden_states: [n, d].  temperature, uniforms: [n] both, see `mtpc.vocabulary.logits.draw_tokens`.
        """
        if self.draft_logits is None:
            return draw_tokens(self.compute_logits(hidden_states), temperature, uniforms)
        return self.draft_logits.drawn(hidden_states, temperature, uniforms, self._maps(hidden_states))

    def _maps(self, hidden_states: Tensor) -> Tensor | None:
        return None if self.maps is None else self.maps[: len(hidden_states)]
