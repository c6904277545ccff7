"""What a window reads that goes on from a serial part: its projections of what is known, and the output head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.draft import Known
from mtpc.target_head.shared import SharedHead

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart


def completed(known: Known, serial: AutoregressivePart, head: SharedHead) -> Known:
    """What is known, with what a window with `reads_serial` needs beside it."""
    embeddings = head.embed(known.tokens).to(known.states.dtype)
    return known._replace(inputs=serial.inputs(embeddings, known.states), head=head)
