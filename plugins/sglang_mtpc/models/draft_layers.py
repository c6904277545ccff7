"""The class that SGLang's model loader builds for a drafter with an autoregressive part, run by SGLang's own draft worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.logits_processor import LogitsMetadata
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_loader.auto_loader import LLAMA_STACKED_MAPPING
from sglang.srt.model_loader.weight_utils import default_weight_loader
from sglang.srt.models.llama import LlamaMLP
from torch import Tensor, nn

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.autoregressive.part import DrafterTokens
from mtpc.draft import DraftContext
from mtpc.errors import MTPCError
from mtpc.methods import DrafterConfig, DraftMethod, draft_methods
from mtpc.methods.drafter import Drafter
from mtpc.target_head.draft_logits import DraftHead, DraftLogits
from mtpc.target_head.own import OwnLogits
from mtpc.target_head.rows import Rows, plain_weight
from mtpc.target_head.shared import Head
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import served
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.ranks import head_ranks, of_first_rank
from sglang_mtpc.vocabulary_head import DraftLogitsProcessor, NoHead, VocabularyHead


def attention(autoregressive: AutoregressiveConfig, config: Any, number: int) -> Any:
    """SGLang's attention of a layer's kind; a drafter is not quantised, whatever its target.

    config: of transformers, as SGLang has made it from the drafter's directory.  number: of the layer, whose keys and
    values lie under it.
    """
    rope = dict(autoregressive.rope_parameters)
    shape = {
        "hidden_size": autoregressive.hidden_size,
        "num_heads": autoregressive.num_attention_heads,
        "num_kv_heads": autoregressive.num_key_value_heads,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": rope,
        "max_position_embeddings": autoregressive.max_position_embeddings,
        "layer_id": number,
        "prefix": f"blocks.{number}.self_attn",
    }
    if autoregressive.layer == "llama":
        from sglang.srt.models.llama import LlamaAttention

        built = LlamaAttention(config, bias=autoregressive.attention_bias, **shape)
    elif autoregressive.layer == "qwen2":
        from sglang.srt.models.qwen2 import Qwen2Attention

        built = Qwen2Attention(head_dim=autoregressive.head_dim, **shape)
    else:
        from sglang.srt.models.qwen3 import Qwen3Attention

        built = Qwen3Attention(head_dim=autoregressive.head_dim, rms_norm_eps=autoregressive.rms_norm_eps, **shape)
    built.o_proj.reduce_results = True  # some releases leave it to a decoder layer of their own
    return built


class Block(nn.Module):
    """A decoder layer.  normed: whether it begins with a norm."""

    def __init__(self, autoregressive: AutoregressiveConfig, config: Any, number: int, normed: bool) -> None:
        super().__init__()
        size, eps = autoregressive.hidden_size, autoregressive.rms_norm_eps
        self.input_layernorm = RMSNorm(size, eps=eps) if normed else nn.Identity()
        self.self_attn = attention(autoregressive, config, number)
        self.post_attention_layernorm = RMSNorm(size, eps=eps)
        self.mlp = LlamaMLP(size, autoregressive.intermediate_size, "silu", prefix=f"blocks.{number}.mlp")

    def forward(
        self, positions: Tensor, z: Tensor, residual: Tensor | None, forward_batch: Any
    ) -> tuple[Tensor, Tensor]:
        """What the layer adds and what it adds it to, [T, d] each, of the same of the layer before."""
        read, residual = (self.input_layernorm(z), z) if residual is None else self.input_layernorm(z, residual)
        attended = self.self_attn(positions=positions, hidden_states=read, forward_batch=forward_batch)
        attended, residual = self.post_attention_layernorm(attended, residual)
        return self.mlp(attended), residual


class SGLangDraftLayers(nn.Module):
    """`mtpc.autoregressive.layer.DraftLayers` in SGLang's layers, with keys and values in SGLang's pages.

    ``embed_tokens`` is its own, or the target's, put here once that is loaded.
    """

    embed_tokens: nn.Module

    def __init__(self, autoregressive: AutoregressiveConfig, config: Any) -> None:
        super().__init__()
        size, self.normed, layers = (
            autoregressive.hidden_size,
            autoregressive.normed,
            range(autoregressive.num_hidden_layers),
        )
        self.own = DrafterTokens.of(autoregressive)
        if self.own is not None and self.own.embedding is not None:
            self.embed_tokens = self.own.embedding
        self.token_layernorm, self.hidden_layernorm, self.final_layernorm = (
            RMSNorm(size, eps=autoregressive.rms_norm_eps) if autoregressive.normed else nn.Identity() for _ in range(3)
        )
        self.input_proj = ReplicatedLinear(2 * size, size, bias=not autoregressive.normed, prefix="input_proj")
        self.blocks = nn.ModuleList(
            Block(autoregressive, config, number, autoregressive.normed or number > 0) for number in layers
        )

    def inputs(self, input_ids: Tensor, previous: Tensor) -> Tensor:
        """What the layers read, [T, d]; see `DraftLayers.inputs`."""
        dtype = self.input_proj.weight.dtype  # the target's may be another
        embeddings = self.token_layernorm(self.embed_tokens(input_ids).to(dtype))
        z: Tensor
        z, _ = self.input_proj(torch.cat([self.hidden_layernorm(previous.to(dtype)), embeddings], -1))
        return z

    def timed_pass(self, states: Tensor) -> None:
        """Compute what takes most of a pass's time, without attention, to time it; states: [n, d]."""
        z = self.inputs(torch.zeros(len(states), dtype=torch.int64, device=states.device), states)
        for block in self.blocks:
            attention: Any = block.self_attn
            qkv, _ = attention.qkv_proj(z)
            attention.o_proj(qkv[:, : attention.q_size].contiguous())
            mlp: Any = block.mlp
            mlp(z)

    def forward(self, input_ids: Tensor, positions: Tensor, previous: Tensor, forward_batch: Any) -> Tensor:
        """The states after one step, [T, d]; see `DraftLayers.forward`."""
        z, residual = self.blocks[0](positions, self.inputs(input_ids, previous), None, forward_batch)
        for block in self.blocks[1:]:
            z, residual = block(positions, z, residual, forward_batch)
        out: Tensor = self.final_layernorm(z, residual)[0] if self.normed else z + residual
        return out


class DraftLayersModel(nn.Module):
    """The autoregressive part with the target's embedding and output head: modules of the target, so nothing is copied."""

    lm_head: Any
    draft_logits: DraftLogits | None = None  # None: the whole vocabulary is drafted
    numbers: Tensor | None = None  # see `RequestVocabularies`
    first_waits = False  # whether first drafts are left to `first_logits`
    first_candidates = 1  # how many SGLang selects of them meanwhile, see `NoHead`
    mixing: Mixing | None = None  # in SGLang's loop of drafts, see `in_loop`
    kept: list[Tensor] | None = None

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.method, self.drafter = served.read(served.folder())
        assert self.drafter.autoregressive is not None
        self.model = SGLangDraftLayers(self.drafter.autoregressive, config)
        self.logits_processor = DraftLogitsProcessor(config)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over the autoregressive part's tensors; the directory was checked when SGLang resolved its arguments."""
        names, parameters = layer_names(self.method, self.drafter), dict(self.model.named_parameters())
        buffers = dict(self.model.own.named_buffers(prefix="own")) if self.model.own is not None else {}
        for name, tensor in weights:
            if name not in names:
                continue  # of the parallel part
            name = names[name]
            if name in buffers:
                buffers[name].copy_(tensor)
            elif LLAMA_STACKED_MAPPING.try_load(name, tensor, parameters) is None:
                parameter = parameters[name]
                getattr(parameter, "weight_loader", default_weight_loader)(parameter, tensor)

    def share(self, target: Any, vocabularies: DraftVocabularies | None, numbers: Tensor | None) -> None:
        """Use the target's embedding and head, or the part's own; gather the rows of the draft vocabularies.

        numbers: int64 [requests at most], of the draft vocabulary of each request of the batch, written before each
        step; None: the first for all.

        Errors: `MTPCError` for draft vocabularies with a head whose rows are no plain numbers.
        """
        own = self.model.own
        if own is None or own.embedding is None:
            self.model.embed_tokens = target.model.embed_tokens
        self.lm_head = target.lm_head
        if own is not None and own.rows is not None and own.tokens is not None:
            self.draft_logits = OwnLogits(own.rows.detach(), own.tokens, self.drafter.vocab_size, head_ranks())
        if vocabularies is None:
            return
        shard = self._shard("a draft vocabulary needs an output head that is not quantised; set its language to 'none'")
        made = DraftLogits if shard.device.type == "cpu" else UnionLogits
        self.draft_logits = made(vocabularies, shard, ranks=head_ranks())
        self.numbers = numbers

    def _shard(self, otherwise: str) -> Tensor:
        """Of the target's output head, this rank's, [V / count, d].

        Errors: `MTPCError`, which says ``otherwise``, for one whose rows are no plain numbers.
        """
        shard = plain_weight(self.lm_head, self.drafter.hidden_size)
        if shard is None:
            raise MTPCError(f"{otherwise}.")
        return shard

    @cached_property
    def whole(self) -> Head:
        """What is drafted through from all tokens."""
        shard = self._shard(f"{self.method.title} needs an output head that is not quantised")
        return DraftHead(Rows(shard, self.drafter.vocab_size, head_ranks()), self.drafter.vocab_size)

    def head(self, requests: int) -> Head:
        """What a batch of so many requests drafts through, from as many rows of states for each."""
        if self.draft_logits is None:
            return self.whole
        return self.draft_logits.head(None if self.numbers is None else self.numbers[:requests])

    def completed(self, known: DraftContext, requests: int | None = None) -> DraftContext:
        """What is known when a window drafts that goes on from the autoregressive part, with what it reads beside it.

        requests: of the batch; None: every row is one.
        """
        inputs = self.model.inputs(known.tokens.flatten(), known.states.flatten(0, 1)).unflatten(0, known.tokens.shape)
        return known._replace(inputs=inputs, head=self.head(len(known.tokens) if requests is None else requests))

    def _asked(self, requests: int) -> Any:
        """As `head`, for SGLang's ``LogitsProcessor``."""
        if self.draft_logits is None:
            return self.lm_head
        return VocabularyHead(self.draft_logits, None if self.numbers is None else self.numbers[:requests])

    @torch.no_grad()
    def first_logits(self, states: Tensor) -> Tensor:
        """Of the first draft of each request of a batch, [B, V], where it was left out; states: the layer's, [B, d]."""
        plainly = LogitsMetadata(ForwardMode.DECODE)
        logits: Tensor = self.logits_processor(None, states, self._asked(len(states)), plainly).next_token_logits
        return logits

    @contextmanager
    def in_loop(self, mixing: Mixing | None, keeps: bool) -> Iterator[list[Tensor]]:
        """Let SGLang's loop draft from the model, and yield the states of its passes, [T, d] each.

        mixing: with what would be copied; None: with nothing.  keeps: whether the states are kept.
        """
        states: list[Tensor] = []
        self.mixing, self.kept = mixing, states if keeps else None
        try:
            yield states
        finally:
            self.mixing = self.kept = None

    @torch.no_grad()
    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: Any) -> Any:
        """SGLang's ``LogitsProcessorOutput`` of one step, with the states that go into the next.

        input_ids: [T], the token after each position.  positions: int64 [T].  ``hidden_states`` of the batch's
        ``spec_info``: [T, d], the target's in the first step (`TargetInterface.state_below`), this layer's own output
        after that.
        """
        if self.mixing is not None:
            self.mixing.drafted(input_ids)
        states = self.model(input_ids, positions, forward_batch.spec_info.hidden_states, forward_batch)
        if self.kept is not None:
            self.kept.append(of_first_rank(states))
        in_loop = forward_batch.forward_mode.is_decode()
        waits = self.first_waits and not in_loop
        head = NoHead(self.first_candidates) if waits else self._asked(forward_batch.batch_size)
        output = self.logits_processor(input_ids, states, head, forward_batch)
        if self.mixing is not None:
            output.next_token_logits = self.mixing.logits(output.next_token_logits)
        return output


def layer_names(method: DraftMethod, config: DrafterConfig) -> dict[str, str]:
    """The names in `SGLangDraftLayers` of a directory's tensors of the autoregressive part, by their names in the directory."""
    with torch.device("meta"):
        names = Drafter(method, config).state_dict()
    autoregressive = [name for name in names if name.startswith("autoregressive.")]
    return {method.tensor_name(name): name.removeprefix("autoregressive.") for name in autoregressive}


# SGLang finds a class by the architecture that a directory names.
EntryClass = [type(method.architecture, (DraftLayersModel,), {}) for method in draft_methods()]
