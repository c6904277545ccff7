"""Attention in plain torch for SGLang's draft worker: SGLang has none for ``torch_native``.

A draft token is one more position of its request, after its accepted tokens.  In a tree, SGLang continues as many nodes
of a level as a node has children.  Each of these branches keeps its slots, whichever node it continues.  A draft token
may therefore attend to keys of nodes that are not its ancestors, as in SGLang on a GPU.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from sglang_cpu.attention import StepLayout

NAME = "torch_native"


class DraftBackend:
    """One attention backend for each draft step but the last, whose keys are not read.

    Args:
        runner: SGLang's draft model runner.
        steps: Draft steps.
        branches: Nodes of each level that are continued; 1 for a chain.
    """

    def __init__(self, runner: Any, steps: int, branches: int) -> None:
        from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

        self.attn_backends = [TorchNativeAttnBackend(runner) for _ in range(steps - 1)]
        self.steps, self.branches = steps, branches
        self.page_size = 1 if branches == 1 else runner.token_to_kv_pool.page_size

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Lay out every draft step; the first one computes the position after the sequence lengths."""
        rows, lengths = forward_batch.req_pool_indices, forward_batch.seq_lens
        table = self.attn_backends[0].req_to_token_pool.req_to_token
        starts = branch_starts(lengths, self.steps, self.branches, self.page_size)
        laid = StepLayout.lay_out(table, rows, lengths, branch_positions(starts, self.steps - 1))
        for backend, visible in zip(self.attn_backends, laid.visible.split(self.branches, 1), strict=True):
            backend.forward_metadata = laid._replace(visible=visible)


def branch_starts(lengths: Tensor, steps: int, branches: int, page_size: int) -> Tensor:
    """Return where each branch's slots begin, in positions after a request's accepted tokens.

    With pages of several slots, each branch has its own pages.  The first one begins with copies of the keys in the
    request's last page.

    Args:
        lengths: Accepted tokens of each request, int64 [B].
        steps: Draft steps.
        branches: Branches of each request.
        page_size: Slots of a page.

    Returns:
        int64 [B, branches].
    """
    numbers = torch.arange(branches)
    if page_size == 1:
        return (numbers * steps).expand(len(lengths), -1)
    in_last_page = lengths % page_size
    pages = (in_last_page + steps + page_size - 1) // page_size
    return numbers * (pages * page_size)[:, None]


def branch_positions(starts: Tensor, steps: int) -> Tensor:
    """Return which positions after the accepted tokens each branch attends to in each step.

    In step i these are the first i positions from its start on.

    Args:
        starts: As returned by `branch_starts`.
        steps: Draft steps.

    Returns:
        Bool [B, steps branches, m], for all m positions after the accepted tokens.
    """
    made = torch.arange(1, steps + 1).repeat_interleave(starts.shape[1])[:, None]  # [steps branches, 1]
    offsets = torch.arange(int(starts.max()) + steps) - starts.repeat(1, steps)[:, :, None]
    return (offsets >= 0) & (offsets < made)


def install(module: Any) -> None:
    """Wrap two methods of ``DraftBackendFactory``, in the module that defines it."""
    if torch.cuda.is_available():
        return
    factory = module.DraftBackendFactory
    factory.create_decode_backend = _with_shim(factory.create_decode_backend, _drafts)
    # The draft runner's own backend, which always exists, extends the cache by accepted tokens.
    factory.create_draft_extend_backend = _with_shim(factory.create_draft_extend_backend, lambda factory: None)


def _drafts(factory: Any) -> DraftBackend | None:
    steps = factory.speculative_num_steps
    return DraftBackend(factory.draft_model_runner, steps, factory.topk) if steps > 1 else None


def _with_shim(original: Any, make: Any) -> Any:
    """Wrap a method to create the shim's backend where ``torch_native`` is selected."""

    @functools.wraps(original)
    def create(self: Any) -> Any:
        from sglang.srt.runtime_context import attention_backends

        chosen = self.draft_attn_backend or attention_backends()[1]
        return make(self) if chosen == NAME else original(self)

    return create
