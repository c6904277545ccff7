"""Drafts of SGLang's own drafters that continue with copied tokens, in a second one of SGLang's runtime states."""

from __future__ import annotations

import logging

from sglang_mtpc.native_lookup import NativePromptLookup

SWITCH = "Switch adaptive runtime state"  # begins SGLang's log line of every change, here of most steps


class LongerCopies:
    """Policy of SGLang's adaptive draft length that verifies K tokens, or more where the others are likely copied.

    SGLang builds a runtime state for each number, on a GPU with CUDA graphs of its own, and asks for the number of each
    step before it drafts.  Drafting always runs in the first state; the second one is entered to verify a longer draft.

    Args:
        lookup: Knows both numbers, and which of them the current step has.
    """

    def __init__(self, lookup: NativePromptLookup) -> None:
        self.lookup, self.candidate_steps = lookup, [lookup.drafts, lookup.longest]
        logging.getLogger("sglang.srt.speculative.eagle_worker_v2").addFilter(_tells_no_switch)

    def get_steps_for_batch(self, batch_size: int) -> int:
        """Return the number of the current step."""
        return self.candidate_steps[self.lookup.is_longer]

    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> int | None:
        """Change nothing: the next number depends on what can be copied."""

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Capture all batch sizes."""

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """Return None: capture all batch sizes."""


def _tells_no_switch(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(SWITCH)
