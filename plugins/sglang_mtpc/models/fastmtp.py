"""The class that SGLang's model loader builds for a FastMTP drafter directory, run by SGLang's own draft worker."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.model_loader.auto_loader import LLAMA_STACKED_MAPPING
from sglang.srt.model_loader.weight_utils import default_weight_loader
from sglang.srt.models.llama import LlamaAttention, LlamaMLP
from sglang.srt.models.qwen2 import Qwen2Attention
from sglang.srt.runtime_context import get_parallel
from torch import Tensor, nn

from mtpc.fastmtp.layer import PREFIX
from mtpc.vocabulary.heads import DraftVocabularies
from mtpc.vocabulary.logits import DraftLogits

logger = logging.getLogger(f"sglang.{__name__}")


def attention(config: Any) -> Any:
    """SGLang's attention of the kind that the drafter's layer has; a drafter is not quantised, whatever its target."""
    rope = dict(config.rope_parameters)
    shape = {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": rope,
        "max_position_embeddings": config.max_position_embeddings,
        "prefix": "self_attn",
    }
    if config.fastmtp["layer"] == "llama":
        found = LlamaAttention(config, bias=config.attention_bias, **shape)
    else:
        found = Qwen2Attention(head_dim=config.head_dim, **shape)
    found.o_proj.reduce_results = True  # some releases leave it to a decoder layer of their own
    return found


class FastMTPModel(nn.Module):
    """`mtpc.fastmtp.layer.MTPLayer` in SGLang's layers, with keys and values in SGLang's pages.

    Tensors have the names of a checkpoint.  ``embed_tokens`` is the target's, put here once that is loaded.
    """

    embed_tokens: nn.Module

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.token_layernorm = RMSNorm(size, eps=eps)
        self.hidden_layernorm = RMSNorm(size, eps=eps)
        self.input_proj = ReplicatedLinear(2 * size, size, bias=False, prefix="input_proj")
        self.input_layernorm = RMSNorm(size, eps=eps)
        self.self_attn = attention(config)
        self.post_attention_layernorm = RMSNorm(size, eps=eps)
        self.mlp = LlamaMLP(size, config.intermediate_size, config.hidden_act, prefix="mlp")
        self.final_layernorm = RMSNorm(size, eps=eps)

    def forward(self, input_ids: Tensor, positions: Tensor, previous: Tensor, forward_batch: Any) -> Tensor:
        """The states after one step, [T, d]; see `MTPLayer.forward`."""
        dtype = self.token_layernorm.weight.dtype  # the target's may be another
        embeddings = self.token_layernorm(self.embed_tokens(input_ids).to(dtype))
        z, _ = self.input_proj(torch.cat([self.hidden_layernorm(previous.to(dtype)), embeddings], -1))
        attended = self.self_attn(
            positions=positions, hidden_states=self.input_layernorm(z), forward_batch=forward_batch
        )
        attended, z = self.post_attention_layernorm(attended, z)
        out: Tensor
        out, _ = self.final_layernorm(self.mlp(attended), z)
        return out


class DraftLogitsProcessor(LogitsProcessor):
    """SGLang's own, but for the logits of a draft vocabulary.

    draft_logits: None where the whole vocabulary is drafted.  maps: int64 [requests at most], the number of the draft
    vocabulary of each request of the batch, in memory that never moves; None: the first for all.
    """

    draft_logits: DraftLogits | None = None
    maps: Tensor | None = None
    requests = 0  # of the batch

    def _get_logits(self, hidden_states: Tensor, lm_head: Any, logits_metadata: Any, *rest: Any, **more: Any) -> Tensor:
        """Logits [n, V] of states [n, d], as many for each request; -inf for a token that cannot be drafted."""
        logits: Tensor
        if self.draft_logits is None:
            logits = super()._get_logits(hidden_states, lm_head, logits_metadata, *rest, **more)
            return logits
        maps = self.maps
        if maps is not None:
            maps = maps[: self.requests].repeat_interleave(len(hidden_states) // max(1, self.requests))
        return self.draft_logits(hidden_states, maps).float()


class EagleFastMTPForCausalLM(nn.Module):
    """A FastMTP drafter with the target's embedding and output head: modules of the target, so nothing is copied."""

    lm_head: Any

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.model = FastMTPModel(config)
        self.logits_processor = DraftLogitsProcessor(config)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over a directory's tensors, which were checked when SGLang resolved its arguments."""
        parameters = dict(self.model.named_parameters())
        for name, tensor in weights:
            name = name.removeprefix(PREFIX)
            if LLAMA_STACKED_MAPPING.try_load(name, tensor, parameters) is None:
                parameter = parameters[name]
                getattr(parameter, "weight_loader", default_weight_loader)(parameter, tensor)

    def share(self, target: Any, vocabularies: DraftVocabularies | None) -> None:
        """Use the target's embedding and head; of the head, gather the rows of the draft vocabularies."""
        self.model.embed_tokens = target.model.embed_tokens
        self.lm_head = target.lm_head
        if vocabularies is None:
            return
        head = get_parallel().tp_group.all_gather(self.lm_head.weight.data, dim=0)[: self.config.vocab_size]
        self.logits_processor.draft_logits = DraftLogits(vocabularies, head, static=head.device.type != "cpu")
        logger.info("FastMTP: %s.", self.logits_processor.draft_logits.summary)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: Any) -> Any:
        """SGLang's ``LogitsProcessorOutput`` of one step, with the states that go into the next.

        input_ids: [T], the token after each position.  positions: int64 [T].  ``hidden_states`` of the batch's
        ``spec_info``: [T, d], the target's after its final norm in the first step, this layer's own output after that.
        """
        states = self.model(input_ids, positions, forward_batch.spec_info.hidden_states, forward_batch)
        self.logits_processor.requests = forward_batch.batch_size
        return self.logits_processor(input_ids, states, self.lm_head, forward_batch)


EntryClass = EagleFastMTPForCausalLM
