"""`mtpc.copying.match` for a batch of texts on a device: shapes are static and nothing waits for the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.copying.match import REACH


class Texts(NamedTuple):
    """Texts in a table whose rows are longer than they are.

    table: token ids int32 [S, T].  rows: int64 [B], each text's row.  lengths: int32 [B], its tokens.
    """

    table: Tensor
    rows: Tensor
    lengths: Tensor

    def tokens(self, places: Tensor) -> Tensor:
        """Those at places [B, m] of each text, int32 [B, m]; any at places outside of the table."""
        return self.table[self.rows[:, None], places.clamp(0, self.table.shape[1] - 1)]


class Matches(NamedTuple):
    """length and start, int32 [B], as in `mtpc.copying.match.Match`."""

    length: Tensor
    start: Tensor


def longest_matches(texts: Texts, longest: int, reach: int = REACH) -> Matches:
    """`longest_match` of each text.

    It takes a few passes for each of ``longest`` tokens over the last ``reach`` places of the table, used or not, with
    some 25 bytes of memory for each place and row.
    """
    width = min(texts.table.shape[1], reach)
    places = texts.lengths[:, None] - width + _counted(width, texts)  # [B, W], of the last tokens of each text
    recent = torch.where(places < 0, places, texts.tokens(places))  # before a text's beginning: like no other place
    matched = torch.zeros_like(recent, dtype=torch.int16)  # tokens of a match that ends there
    matching = torch.ones_like(recent[:, :-1], dtype=torch.bool)
    for back in range(min(longest, width - 1)):
        last = width - 1 - back
        matching = matching[:, min(back, 1) :] & (recent[:, :last] == recent[:, last, None])
        matched[:, back:-1] += matching
    best = (matched.int() * width + _counted(width, texts)).amax(1)  # the last of the longest
    return Matches(best // width, texts.lengths - width + best % width + 1)


def continuations(texts: Texts, matches: Matches, count: int) -> Tensor:
    """`continuation` of each text, int64 [B, count]; any tokens where nothing matches."""
    period = (texts.lengths - matches.start).clamp_min(1)
    return texts.tokens(matches.start[:, None] + _counted(count, texts) % period[:, None]).long()


def _counted(count: int, texts: Texts) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=texts.table.device)
