"""Counts of drafts by draft vocabulary, kept on the device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from mtpc.metrics.tally import Totals


class SlotTally:
    """`mtpc.metrics.tally.Tally` in static shapes, so that a CUDA graph may contain the counting.

    Call `count` in each step; set ``begun`` when requests are served.  `totals` may be called by another thread.

    Attributes:
        names: Names of the draft vocabularies, by number.
        drafts: Counts by vocabulary, verified and accepted tokens, int64 [L, K + 1, K + 1].
        moves: Counts of changes between vocabularies, int64 [L + 1, L]; the first row counts new requests.
        begun: Whether requests are served; before that, while graphs are captured, nothing is read.

    Args:
        names: Names of the draft vocabularies, by number.
        longest: Draft tokens at most, K.
        device: Device of all tensors.
    """

    begun = False

    def __init__(self, names: Sequence[str], longest: int, device: torch.device) -> None:
        self.names = tuple(names)
        self.drafts = torch.zeros(len(names), longest + 1, longest + 1, dtype=torch.int64, device=device)
        self.moves = torch.zeros(len(names) + 1, len(names), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def count(self, before: Tensor, after: Tensor, drafted: Tensor, accepted: Tensor, counted: Tensor) -> None:
        """Count one step; all arguments are [B].

        Args:
            before: Vocabulary numbers until now, -1 for none.
            after: Vocabulary numbers from now on.
            drafted: Draft tokens that were verified.
            accepted: Draft tokens that were accepted.
            counted: Which rows count, bool.
        """
        width, drafted_rows = self.drafts.shape[1], counted & (before >= 0) & (drafted > 0)
        draft = (before.clamp_min(0) * width + drafted.clamp(0, width - 1)) * width + accepted.clamp(0, width - 1)
        self.drafts.view(-1).index_add_(0, draft, drafted_rows.long())
        move = (before + 1) * len(self.names) + after
        self.moves.view(-1).index_add_(0, move, (counted & (before != after)).long())

    def totals(self) -> Totals:
        """Return the counts so far; only the calling thread waits for the device."""
        if not self.begun:
            return Totals({}, {})
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            drafts, moves = self.drafts.cpu(), self.moves.cpu()
        return Totals(
            {(number, drafted, accepted): count for (number, drafted, accepted), count in _nonzero(drafts)},
            {(before - 1 if before else None, after): count for (before, after), count in _nonzero(moves)},
        )


def _nonzero(counts: Tensor) -> list[tuple[list[int], int]]:
    """Return indices and values of all nonzero counts."""
    return list(zip(counts.nonzero().tolist(), counts[counts != 0].tolist(), strict=True))
