"""What a window reads that goes on from an autoregressive part: its projections of what is known, and the output head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.draft import DraftContext
from mtpc.target_head.shared import SharedHead

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart


def with_head_inputs(context: DraftContext, autoregressive: AutoregressivePart, head: SharedHead) -> DraftContext:
    """What is known, with what a window with `reads_autoregressive` needs beside it."""
    embeddings = head.embed(context.tokens).to(context.states.dtype)
    return context._replace(inputs=autoregressive.inputs(embeddings, context.states), head=head)
