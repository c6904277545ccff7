"""Draft model for SGLang's model loader: the draft layers of a drafter, run by SGLang's own draft worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

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
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.autoregressive.part import DrafterTokens
from mtpc.draft import DraftContext
from mtpc.methods import DrafterConfig, DraftMethod, draft_methods
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.target_head.shared import Head
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import served
from sglang_mtpc.adapted_layers import SGLangAdaptedLayers
from sglang_mtpc.drafter_head import DrafterHead
from sglang_mtpc.ranks import of_first_rank
from sglang_mtpc.target_modules import target_module
from sglang_mtpc.vocabulary_head import DraftLogitsProcessor, ZeroHead

if TYPE_CHECKING:
    from mtpc.autoregressive.adapted_layers import AdaptedLayers


def attention(autoregressive: AutoregressiveConfig, config: Any, number: int) -> Any:
    """Build SGLang's attention of a layer type, unquantized even if the target is quantized.

    Args:
        autoregressive: Configuration of the draft layers.
        config: Configuration of transformers that SGLang made from the drafter checkpoint.
        number: Index of the layer in the KV cache.

    Returns:
        The attention module.
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
    built.o_proj.reduce_results = True  # some releases leave this to their decoder layer
    return built


class Block(nn.Module):
    """A decoder layer.

    Args:
        autoregressive: Configuration of the draft layers.
        config: As for `attention`.
        number: As for `attention`.
        normed: Whether the layer begins with a norm.
    """

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
        """Return output and residual of the layer, [T, d] each, from those of the preceding layer."""
        read, residual = (self.input_layernorm(z), z) if residual is None else self.input_layernorm(z, residual)
        attended = self.self_attn(positions=positions, hidden_states=read, forward_batch=forward_batch)
        attended, residual = self.post_attention_layernorm(attended, residual)
        return self.mlp(attended), residual


class SGLangDraftLayers(nn.Module):
    """`mtpc.autoregressive.layer.DraftLayers` with SGLang's modules, whose keys and values are in SGLang's pages.

    Args:
        autoregressive: Configuration of the draft layers.
        config: As for `attention`.

    Attributes:
        embed_tokens: The drafter's own embedding, or the target's; `DraftLayersModel.share` sets the latter.
        own: The drafter's own embedding and head rows, if it has any.
    """

    embed_tokens: nn.Module

    def __init__(self, autoregressive: AutoregressiveConfig, config: Any) -> None:
        super().__init__()
        size, layers = autoregressive.hidden_size, range(autoregressive.num_hidden_layers)
        self.normed = autoregressive.normed
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

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the states; the target's may differ."""
        return self.input_proj.weight.dtype

    def inputs(self, input_ids: Tensor, previous: Tensor) -> Tensor:
        """Return the input of the first layer, [T, d], see `DraftLayers.inputs`."""
        dtype = self.dtype
        embeddings = self.token_layernorm(self.embed_tokens(input_ids).to(dtype))
        z: Tensor
        z, _ = self.input_proj(torch.cat([self.hidden_layernorm(previous.to(dtype)), embeddings], -1))
        return z

    def timed_pass(self, states: Tensor) -> None:
        """Run a pass without attention on dummy tokens, to time it; states: [n, d]."""
        z = self.inputs(torch.zeros(len(states), dtype=torch.int64, device=states.device), states)
        for block in self.blocks:
            attention: Any = block.self_attn
            qkv, _ = attention.qkv_proj(z)
            attention.o_proj(qkv[:, : attention.q_size].contiguous())
            mlp: Any = block.mlp
            mlp(z)

    def forward(self, input_ids: Tensor, positions: Tensor, previous: Tensor, forward_batch: Any) -> Tensor:
        """Return the states after one draft step, [T, d], see `DraftLayers.forward`."""
        z, residual = self.blocks[0](positions, self.inputs(input_ids, previous), None, forward_batch)
        for block in self.blocks[1:]:
            z, residual = block(positions, z, residual, forward_batch)
        out: Tensor = self.final_layernorm(z, residual)[0] if self.normed else z + residual
        return out


class DraftLayersModel(nn.Module):
    """The draft layers with the target's embedding and output head, which are shared and not copied.

    SGLang's model loader creates it and calls `load_weights`.  `share` must follow once the target is loaded.  Then
    SGLang calls it for each draft step.

    Attributes:
        output: The output head that is drafted through.
        defers_first_logits: Whether the logits of first draft tokens are left to `first_logits`, or never computed.
        first_candidates: First draft tokens that SGLang selects in the meantime, see `ZeroHead`.
        loop_states: States of the passes so far, only set within `in_loop`.
    """

    output: DrafterHead
    defers_first_logits = False
    first_candidates = 1
    loop_states: list[Tensor] | None = None

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__()
        self.config = config
        self.method, self.drafter = served.read(served.folder())
        autoregressive = self.drafter.autoregressive
        self.model: SGLangDraftLayers | SGLangAdaptedLayers
        if isinstance(autoregressive, LoRALayersConfig):
            self.model = SGLangAdaptedLayers(autoregressive)
        else:
            assert isinstance(autoregressive, AutoregressiveConfig)  # the only other kind of layers
            self.model = SGLangDraftLayers(autoregressive, config)
        self.logits_processor = DraftLogitsProcessor(config)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load the autoregressive part's tensors; the checkpoint was checked when SGLang resolved its arguments."""
        if isinstance(self.model, SGLangAdaptedLayers):
            self.model.load(cast("AdaptedLayers", load_drafter(served.folder()).autoregressive))
            return
        names, parameters = layer_names(self.method, self.drafter), dict(self.model.named_parameters())
        buffers = dict(self.model.own.named_buffers(prefix="own")) if self.model.own is not None else {}
        for name, tensor in weights:
            if name not in names:
                continue  # a tensor of the parallel part
            name = names[name]
            if name in buffers:
                buffers[name].copy_(tensor)
            elif LLAMA_STACKED_MAPPING.try_load(name, tensor, parameters) is None:
                parameter = parameters[name]
                getattr(parameter, "weight_loader", default_weight_loader)(parameter, tensor)

    def share(self, target: Any, vocabularies: DraftVocabularies | None, numbers: Tensor | None) -> None:
        """Share the target's embedding and head unless the drafter has its own; gather rows of draft vocabularies.

        Args:
            target: SGLang's model of the target.
            vocabularies: Draft vocabularies; None: the whole vocabulary.
            numbers: Buffer of each request's draft vocabulary, int64 [most requests], written before each step; None:
                the first for all.

        Raises:
            MTPCError: See `target_module` and `DrafterHead`.
        """
        own = self.model.own
        if own is None or own.embedding is None:
            self.model.embed_tokens = target_module(target, "model.embed_tokens")
        if isinstance(self.model, SGLangAdaptedLayers):
            self.model.share(target)
        lm_head = None if own is not None and own.rows is not None else target_module(target, "lm_head")
        self.output = DrafterHead(lm_head, self.drafter, self.model.dtype, vocabularies, numbers, own)

    def head(self, requests: int) -> Head:
        """Return the head that is drafted through, see `DrafterHead.head`."""
        return self.output.head(requests)

    def with_head_inputs(self, known: DraftContext, requests: int | None = None) -> DraftContext:
        """Add the layer inputs and the head that a parallel part after this autoregressive part reads.

        Args:
            known: Draft context of the batch.
            requests: Requests of the batch; None: each row is a request.

        Returns:
            The draft context with ``inputs`` and ``head``.
        """
        inputs = self.model.inputs(known.tokens.flatten(), known.states.flatten(0, 1)).unflatten(0, known.tokens.shape)
        return known._replace(inputs=inputs, head=self.head(len(known.tokens) if requests is None else requests))

    @torch.no_grad()
    def first_logits(self, states: Tensor) -> Tensor:
        """Compute the deferred logits of each request's first draft token, [B, V], from the layers' states [B, d]."""
        metadata = LogitsMetadata(ForwardMode.DECODE)
        logits: Tensor = self.logits_processor(
            None, states, self.output.for_processor(len(states)), metadata
        ).next_token_logits
        return logits

    @contextmanager
    def in_loop(self, keeps: bool) -> Iterator[list[Tensor]]:
        """Prepare the model for SGLang's draft loop, which must run within this context.

        Args:
            keeps: Whether to keep the states of the passes.

        Yields:
            The states of the passes so far, [T, d] each; empty unless kept.
        """
        states: list[Tensor] = []
        self.loop_states = states if keeps else None
        try:
            yield states
        finally:
            self.loop_states = None

    @torch.no_grad()
    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: Any) -> Any:
        """Run one draft step.

        Args:
            input_ids: Token after each position, int64 [T].
            positions: int64 [T].
            forward_batch: SGLang's ``ForwardBatch``.  ``spec_info.hidden_states`` [T, d] are the target's in the first
                step (see `TargetInterface.state_below`), then the output of the preceding draft step.

        Returns:
            SGLang's ``LogitsProcessorOutput``, with the states for the next step.
        """
        states = self.model(input_ids, positions, forward_batch.spec_info.hidden_states, forward_batch)
        if self.loop_states is not None:
            self.loop_states.append(of_first_rank(states))
        in_loop = forward_batch.forward_mode.is_decode()
        deferred = self.defers_first_logits and not in_loop
        head = ZeroHead(self.first_candidates) if deferred else self.output.for_processor(forward_batch.batch_size)
        return self.logits_processor(input_ids, states, head, forward_batch)


def layer_names(method: DraftMethod, config: DrafterConfig) -> dict[str, str]:
    """Return the names in `SGLangDraftLayers` of the autoregressive part's tensors, by their checkpoint names.

    Args:
        method: The draft method.
        config: Configuration of the drafter.

    Returns:
        Names in `SGLangDraftLayers` by names in the checkpoint.
    """
    with torch.device("meta"):
        names = Drafter(method, config).state_dict()
    autoregressive = [name for name in names if name.startswith("autoregressive.")]
    return {method.tensor_name(name): name.removeprefix("autoregressive.") for name in autoregressive}


# SGLang finds a class by the architecture in the checkpoint's config.json.
EntryClass = [type(method.architecture, (DraftLayersModel,), {}) for method in draft_methods()]
