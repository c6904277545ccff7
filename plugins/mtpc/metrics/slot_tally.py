"""What became of drafts, by draft vocabulary, where the device alone knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from mtpc.metrics.tally import Totals


class SlotTally:
    """`mtpc.metrics.tally.Tally` in static shapes, so that a CUDA graph may hold the counting.

    names: of the draft vocabularies.  longest: K.  drafts: int64 [L, K + 1, K + 1].  moves: int64 [L + 1, L], the first
    row of requests that began.  begun: whether requests are served; nothing is read before, while graphs are captured.
    """

    begun = False

    def __init__(self, names: Sequence[str], longest: int, device: torch.device) -> None:
        self.names = tuple(names)
        self.drafts = torch.zeros(len(names), longest + 1, longest + 1, dtype=torch.int64, device=device)
        self.moves = torch.zeros(len(names) + 1, len(names), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def count(self, before: Tensor, after: Tensor, drafted: Tensor, accepted: Tensor, there: Tensor) -> None:
        """One step, each [B]: vocabularies until now (-1: none) and from now on, and what became of the drafts.

        there: bool, which rows count.
        """
        width, had = self.drafts.shape[1], there & (before >= 0) & (drafted > 0)
        draft = (before.clamp_min(0) * width + drafted.clamp(0, width - 1)) * width + accepted.clamp(0, width - 1)
        self.drafts.view(-1).index_add_(0, draft, had.long())
        move = (before + 1) * len(self.names) + after
        self.moves.view(-1).index_add_(0, move, (there & (before != after)).long())

    def totals(self) -> Totals:
        """The counts so far, read beside whatever the device does: only this thread waits."""
        if not self.begun:
            return Totals({}, {})
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            drafts, moves = self.drafts.cpu(), self.moves.cpu()
        return Totals(
            {(number, drafted, accepted): count for (number, drafted, accepted), count in _counted(drafts)},
            {(before - 1 if before else None, after): count for (before, after), count in _counted(moves)},
        )


def _counted(counts: Tensor) -> list[tuple[list[int], int]]:
    """The places with a count, and these."""
    return list(zip(counts.nonzero().tolist(), counts[counts != 0].tolist(), strict=True))
