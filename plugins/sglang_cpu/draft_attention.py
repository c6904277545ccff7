"""Attention for SGLang's own draft worker in plain torch: upstream has none for ``torch_native``.

Drafts are chains here: a draft is one more position of its request, whose keys follow those of the text.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from sglang_cpu.attention import Step

NAME = "torch_native"


class ChainBackend:
    """One backend for each step of a chain of drafts but the last, whose keys nobody reads."""

    def __init__(self, runner: Any, steps: int) -> None:
        from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

        self.attn_backends = [TorchNativeAttnBackend(runner) for _ in range(steps - 1)]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Lay out every step, the first of which computes the position after the text."""
        one = torch.ones(forward_batch.batch_size, 1, 1, dtype=torch.bool)
        for step, backend in enumerate(self.attn_backends):
            table = backend.req_to_token_pool.req_to_token
            before = forward_batch.seq_lens + step
            backend.forward_metadata = Step.lay_out(table, forward_batch.req_pool_indices, before, one)


def install(module: Any) -> None:
    """Wrap two methods of ``DraftBackendFactory``, in the module that defines it."""
    if torch.cuda.is_available():
        return
    factory = module.DraftBackendFactory
    factory.create_decode_backend = _instead(factory.create_decode_backend, _chain)
    # The draft runner's own backend, which there is in any case, takes up what was verified.
    factory.create_draft_extend_backend = _instead(factory.create_draft_extend_backend, lambda factory: None)


def _chain(factory: Any) -> ChainBackend | None:
    if factory.topk > 1:
        raise NotImplementedError("trees of an EAGLE drafter are not drafted on a CPU.")
    steps = factory.speculative_num_steps
    return ChainBackend(factory.draft_model_runner, steps) if steps > 1 else None


def _instead(original: Any, make: Any) -> Any:
    """The method, but for the backend that it does not know."""

    @functools.wraps(original)
    def create(self: Any) -> Any:
        from sglang.srt.runtime_context import attention_backends

        chosen = self.draft_attn_backend or attention_backends()[1]
        return make(self) if chosen == NAME else original(self)

    return create
