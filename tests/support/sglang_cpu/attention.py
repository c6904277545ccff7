"""Attention in plain torch for SGLang's ``torch_native`` backend: draft trees, and all requests of a step at once.

SGLang's ``TorchNativeAttnBackend`` supports no trees and computes one request after the other.  Here the layout of a
step that decodes or verifies is computed once (`StepLayout`), and every layer computes all requests together.  Prompts
and anything but plain self-attention still use SGLang's backend.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 32  # positions; sums over whole blocks round equally for any number of blocks


class StepLayout(NamedTuple):
    """Slots of the keys of a step, and which queries attend to them.

    S is the length of the longest request in whole blocks.  In bfloat16, a request's result then hardly depends on the
    lengths of the other requests.

    Attributes:
        slots: Slot of every position, int64 [B S].
        visible: Whether each query attends to each position, bool [B, n, S].
    """

    slots: Tensor
    visible: Tensor

    @classmethod
    def lay_out(cls, req_to_token: Tensor, rows: Tensor, before: Tensor, tree: Tensor) -> StepLayout:
        """Lay out a step of n queries for each of B requests.

        Args:
            req_to_token: Slot of each position of each request, int32 [requests, positions].
            rows: Rows of the requests in it, [B].
            before: Positions before the step, [B].
            tree: Which of the m positions of the step each query attends to, bool [B, n, m].

        Returns:
            The layout.
        """
        queries, width = tree.shape[1:]
        length = -(-(int(before.max()) + width) // BLOCK) * BLOCK
        positions = torch.arange(min(length, req_to_token.shape[1]))
        offsets = positions - before[:, None]  # [B, S], indices into the positions of the step
        within = tree.gather(2, offsets.clamp(0, width - 1)[:, None, :].expand(-1, queries, -1))
        visible = (offsets < 0)[:, None, :] | (within & (offsets < width)[:, None, :])
        return cls(req_to_token[rows, : len(positions)].long().flatten(), visible)


def attend(query: Tensor, keys: Tensor, values: Tensor, step: StepLayout, scaling: float | None) -> Tensor:
    """Compute attention over cached keys and values.

    Query heads that share a key head become more queries of that head.

    Args:
        query: [B n, Hq, D].
        keys: Cache of keys, [slots, H, D].
        values: Cache of values, [slots, H, Dv].
        step: Layout of the step.
        scaling: Factor of the scores; None: 1 / sqrt(D).

    Returns:
        [B n, Hq, Dv].
    """
    (batch, width, length), heads = step.visible.shape, keys.shape[1]
    group = query.shape[1] // heads
    laid = query.view(batch, width, heads, group, -1).permute(0, 2, 3, 1, 4).reshape(batch, heads, group * width, -1)
    gathered = (cache.index_select(0, step.slots).to(query.dtype) for cache in (keys, values))
    key, value = (each.view(batch, length, heads, -1).transpose(1, 2) for each in gathered)  # [B, H, S, D]
    mask = step.visible[:, None].expand(-1, group, -1, -1).reshape(batch, 1, group * width, length)
    found = F.scaled_dot_product_attention(laid, key, value, attn_mask=mask, scale=scaling)
    found = found.view(batch, heads, group, width, -1).permute(0, 3, 1, 2, 4)
    return found.reshape(batch * width, heads * group, -1)


def install(module: Any) -> None:
    """Wrap three methods of ``TorchNativeAttnBackend``, in the module that defines it."""
    if torch.cuda.is_available():
        return
    backend = module.TorchNativeAttnBackend
    backend.init_forward_metadata = _prepare(backend.init_forward_metadata)
    for name in ("_run_sdpa_forward_decode", "_run_sdpa_forward_extend"):
        setattr(backend, name, _batched(getattr(backend, name)))


def _prepare(original: Any) -> Any:
    @functools.wraps(original)
    def init_forward_metadata(self: Any, forward_batch: Any) -> None:
        original(self, forward_batch)
        self.forward_metadata = _step(self.req_to_token_pool.req_to_token, forward_batch)

    return init_forward_metadata


def _step(req_to_token: Tensor, batch: Any) -> StepLayout | None:
    """Return the layout of a step that decodes, verifies or extends the drafter's cache; None for other steps."""
    mode, count = batch.forward_mode, batch.batch_size
    if count and mode.is_decode():
        tree = torch.ones(count, 1, 1, dtype=torch.bool)
        return StepLayout.lay_out(req_to_token, batch.req_pool_indices, batch.seq_lens - 1, tree)
    if count and mode.is_target_verify():
        nodes = batch.spec_info.draft_token_num
        tree = batch.spec_info.custom_mask[: count * nodes * nodes].view(count, nodes, nodes)
        return StepLayout.lay_out(req_to_token, batch.req_pool_indices, batch.seq_lens, tree)
    if count and mode.is_draft_extend_v2():
        nodes = len(batch.input_ids) // count
        tree = torch.ones(nodes, nodes, dtype=torch.bool).tril().expand(count, -1, -1)
        return StepLayout.lay_out(req_to_token, batch.req_pool_indices, batch.seq_lens - nodes, tree)
    return None


def _batched(original: Any) -> Any:
    @functools.wraps(original)
    def run(self: Any, query: Tensor, output: Tensor, k_cache: Tensor, v_cache: Tensor, *rest: Any, **more: Any) -> Any:
        step = self.forward_metadata
        if step is None or more.get("is_cross_attn") or more.get("sliding_window_size") is not None:
            return original(self, query, output, k_cache, v_cache, *rest, **more)
        output.copy_(attend(query, k_cache, v_cache, step, more["scaling"]))
        return output

    return run
