"""Attention for SGLang's own draft worker in plain torch: upstream has none for ``torch_native``.

A draft is one more position of its request, whose keys follow those of the text.  In a tree SGLang goes on from as many
nodes of a level as one node has children; each of these branches has slots of its own, and keeps them whichever node it
goes on from, so that a draft may see keys of nodes that are not above it: this is what SGLang computes on a GPU, too.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from sglang_cpu.attention import Step

NAME = "torch_native"


class DraftBackend:
    """One backend for each step of the drafts but the last, whose keys nobody reads.

    branches: how many nodes of a level are gone on from; 1 for a chain.
    """

    def __init__(self, runner: Any, steps: int, branches: int) -> None:
        from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

        self.attn_backends = [TorchNativeAttnBackend(runner) for _ in range(steps - 1)]
        self.steps, self.branches = steps, branches
        self.page_size = 1 if branches == 1 else runner.token_to_kv_pool.page_size

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Lay out every step, the first of which computes the position after the given lengths."""
        rows, lengths = forward_batch.req_pool_indices, forward_batch.seq_lens
        table = self.attn_backends[0].req_to_token_pool.req_to_token
        starts = branch_starts(lengths, self.steps, self.branches, self.page_size)
        laid = Step.lay_out(table, rows, lengths, own_positions(starts, self.steps - 1))
        for backend, visible in zip(self.attn_backends, laid.visible.split(self.branches, 1), strict=True):
            backend.forward_metadata = laid._replace(visible=visible)


def branch_starts(lengths: Tensor, steps: int, branches: int, page_size: int) -> Tensor:
    """How many positions after a request's text each branch's slots begin: int64 [B, branches].

    lengths: int64 [B], of the texts.  With pages of several slots every branch has pages of its own, of which the first
    begins with as many slots as the text has in its last page: there SGLang keeps copies of the text's keys.
    """
    numbers = torch.arange(branches)
    if page_size == 1:
        return (numbers * steps).expand(len(lengths), -1)
    in_last_page = lengths % page_size
    pages = (in_last_page + steps + page_size - 1) // page_size
    return numbers * (pages * page_size)[:, None]


def own_positions(starts: Tensor, steps: int) -> Tensor:
    """Bool [B, steps branches, m], step by step: what each branch sees of its own, of all m positions after the text.

    That is as many from its start on, [B, branches], as steps have been made.
    """
    made = torch.arange(1, steps + 1).repeat_interleave(starts.shape[1])[:, None]  # [steps branches, 1]
    offsets = torch.arange(int(starts.max()) + steps) - starts.repeat(1, steps)[:, :, None]
    return (offsets >= 0) & (offsets < made)


def install(module: Any) -> None:
    """Wrap two methods of ``DraftBackendFactory``, in the module that defines it."""
    if torch.cuda.is_available():
        return
    factory = module.DraftBackendFactory
    factory.create_decode_backend = _instead(factory.create_decode_backend, _drafts)
    # The draft runner's own backend, which there is in any case, takes up what was verified.
    factory.create_draft_extend_backend = _instead(factory.create_draft_extend_backend, lambda factory: None)


def _drafts(factory: Any) -> DraftBackend | None:
    steps = factory.speculative_num_steps
    return DraftBackend(factory.draft_model_runner, steps, factory.topk) if steps > 1 else None


def _instead(original: Any, make: Any) -> Any:
    """The method, but for the backend that it does not know."""

    @functools.wraps(original)
    def create(self: Any) -> Any:
        from sglang.srt.runtime_context import attention_backends

        chosen = self.draft_attn_backend or attention_backends()[1]
        return make(self) if chosen == NAME else original(self)

    return create
