"""A language model that keeps a context of its own for each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtpc.draft_model.slot_cache import PackedBatch, SlotCache, Span
from mtpc.errors import MTPCError, first_line
from mtpc.memory import check_language_model_memory
from mtpc.processor import is_slow_in_bfloat16

ATTENTION = "mtpc_slots"  # the name of `_attend` in transformers
FEW = 3  # most tokens for which a CPU is faster with weights in bfloat16 and torch's own products
CHUNK = 512  # most tokens of a forward pass, so that the masks and states of a long prompt stay small


class LanguageModel:
    """A causal language model of transformers that reads requests of different lengths in one batch.

    Each request has a slot of keys and values. The new tokens of a batch are one sequence without padding
    (`PackedBatch`); only the attention, which transformers calls by its name, tells the requests apart.

    Attributes:
        vocab_size: V, the number of logits.
        slots: Number of slots.
        context: Positions of a slot: what was asked for, or what the model was made for where that is less.
        cache: Keys and values.

    Args:
        folder: Local folder of the model.
        device: Device of the model.
        dtype: Dtype of weights, keys and values.
        slots: Number of slots.
        context: Positions of a slot.

    Raises:
        MTPCError: The folder cannot be loaded, the model needs more than keys and values of all positions, or there
            is too little memory.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, slots: int, context: int) -> None:
        sketch = _sketch(folder)
        config = sketch.config.get_text_config(decoder=True)
        heads = config.num_attention_heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.slots = slots
        self.context = min(context, getattr(config, "max_position_embeddings", None) or context)
        shape = (config.num_hidden_layers, slots, key_heads, self.context, head_size)
        numbers = sum(weight.numel() for weight in sketch.parameters()) + 2 * torch.Size(shape).numel()
        what = f"the draft model {folder} with {slots} slots of {self.context} tokens"
        check_language_model_memory(dtype.itemsize * numbers, what, device)
        self._groups, self._dtype, self._device = heads // key_heads, dtype, device
        self._model = _load(folder, dtype, device)
        self.vocab_size: int = self._model.get_output_embeddings().weight.shape[0]
        self.cache = SlotCache(shape, dtype, device)
        try:
            self.read([0], [[0]], [0])
        except RuntimeError as error:  # sizes of keys that follow from other settings
            raise MTPCError(f"{folder} cannot be a draft model: {first_line(error)}.") from None

    @torch.inference_mode()
    def read(
        self, slots: Sequence[int], tokens: Sequence[Sequence[int]], starts: Sequence[int], *, every: bool = False
    ) -> Tensor:
        """Read new tokens of B requests, and return the logits after the last token of each.

        A request attends to its slot's positions before its start, which must have been read, and to its new tokens.
        What was read at later positions counts no more: so a request is rolled back, and a slot is reused from 0.

        Args:
            slots: Slot of each request, all different.
            tokens: New tokens of each request, at least one.
            starts: Position of each request's first new token; its last one must lie within `context`.
            every: Whether to return the logits after each of the tokens, T together.

        Returns:
            float32 [B, V], or [T, V].
        """
        chunks = _chunks(map(Span, slots, starts, tokens), CHUNK)
        if every:
            chunks = ((spans, list(range(sum(len(span.tokens) for span in spans)))) for spans, _ in chunks)
        return torch.cat([self._forward(spans, ends) for spans, ends in chunks])

    def memory(self) -> int:
        """Return the bytes of weights, keys and values."""
        kept = chain(self._model.parameters(), self._model.buffers(), (self.cache.keys, self.cache.values))
        return sum(tensor.nbytes for tensor in kept)

    def _forward(self, spans: Sequence[Span], ends: Sequence[int]) -> Tensor:
        """Read spans, and return the logits after some of their T tokens, float32 [len(ends), V]."""
        batch = PackedBatch(spans, self._groups, self._dtype, self._device)
        with _kernels_for(batch.tokens.shape[1]):
            logits: Tensor = self._model(
                batch.tokens,
                position_ids=batch.positions,
                use_cache=False,
                logits_to_keep=torch.tensor(ends, dtype=torch.int64, device=self._device),
                slot_cache=self.cache,
                packed_batch=batch,
            ).logits
        return logits[0].float()


@contextmanager
def _kernels_for(count: int) -> Iterator[None]:
    """Choose the CPU's kernels for a number of tokens.

    oneDNN's bfloat16 products take 1.7 times as long as torch's own for one token, and less from four tokens on.
    """
    onednn: Any = torch.backends.mkldnn
    before = onednn.enabled
    onednn.enabled = before and count > FEW
    try:
        yield
    finally:
        onednn.enabled = before


class WideLinear(nn.Linear):
    """Linear layer that multiplies many tokens in float32.

    A CPU without bfloat16 products then reads 512 tokens in a seventh of the time, the conversion of the weights
    included.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return products of ``x`` [..., T, in], in its dtype."""
        if x.shape[-2] <= FEW:
            return super().forward(x)
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(x.float(), self.weight.float(), bias).to(x.dtype)


def _chunks(spans: Iterable[Span], size: int) -> Iterator[tuple[list[Span], list[int]]]:
    """Yield parts of the spans with at most ``size`` tokens together, and the indices of last tokens of spans."""
    part: list[Span] = []
    ends: list[int] = []
    count = 0
    for slot, start, tokens in spans:
        done = 0
        while done < len(tokens):
            part.append(Span(slot, start + done, tokens[done : done + size - count]))
            done += len(part[-1].tokens)
            count += len(part[-1].tokens)
            if done == len(tokens):
                ends.append(count - 1)
            if count == size:
                yield part, ends
                part, ends, count = [], [], 0
    if part:
        yield part, ends


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    slot_cache: SlotCache,
    packed_batch: PackedBatch,
    scaling: float | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Call `SlotCache.attend`, with the arguments that transformers gives to an attention function."""
    return slot_cache.attend(module.layer_idx, query, key, value, scaling, packed_batch), None


def _sketch(folder: Path) -> Any:
    """Return the model without weights, after a check that a slot can hold what it keeps of a request."""
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, DynamicCache
    from transformers.cache_utils import DynamicLayer

    AttentionInterface.register(ATTENTION, _attend)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        has_encoder = config.is_encoder_decoder  # the decoder that is made of it denies it
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        layers = DynamicCache(config=config).layers
    except Exception as error:  # transformers raises any exception for a damaged folder
        raise _unloadable(folder, error) from None
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    reason = None
    if has_encoder:
        reason = "an encoder"
    elif any(type(layer) is not DynamicLayer for layer in layers):
        reason = "layers of sliding-window or linear attention"
    elif not (model._supports_sdpa and model._supports_attention_backend):
        reason = "an attention of its own"
    elif rope.get("rope_type") == "longrope":
        reason = "rotary frequencies that change with a request's length"
    if reason is not None:
        raise MTPCError(
            f"{folder} of model_type {config.model_type!r} has {reason}; a draft model must be a decoder whose layers "
            "all have full attention, as llama and qwen2."
        )
    return model


def _load(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Return the model with its weights."""
    from transformers import AutoModelForCausalLM

    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=ATTENTION,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:
        raise _unloadable(folder, error) from None
    for name in sorted(loading["missing_keys"]):  # transformers would fill them with random numbers
        raise _unloadable(folder, f"it does not hold the tensor {name!r}")
    if device.type == "cpu" and dtype == torch.bfloat16 and is_slow_in_bfloat16():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = WideLinear
    return model.to(device).eval().requires_grad_(False)


def _unloadable(folder: Path, why: object) -> MTPCError:
    line = first_line(why) if isinstance(why, BaseException) else why
    return MTPCError(f"{folder} cannot be loaded as a draft model: {line}; expected the folder of a causal model.")
