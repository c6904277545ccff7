"""Inputs of a parallel part that drafts through the target's output head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.draft import DraftContext
from mtpc.target_head.shared import SharedHead

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart


def with_head_inputs(
    context: DraftContext, autoregressive: AutoregressivePart | None, head: SharedHead
) -> DraftContext:
    """Add what a parallel part with ``reads_head`` needs to a context.

    Args:
        context: States and tokens, [B, s + 1] positions.
        autoregressive: The part whose input projection is applied to each position; None: there is none.
        head: The embedding and output head that the drafter uses.

    Returns:
        The context with ``inputs`` [B, s + 1, d] and ``head``.
    """
    embeddings = head.embed(context.tokens).to(context.states.dtype)
    inputs = embeddings if autoregressive is None else autoregressive.inputs(embeddings, context.states)
    return context._replace(inputs=inputs, head=head)
