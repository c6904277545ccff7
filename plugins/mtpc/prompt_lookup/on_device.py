"""`mtpc.prompt_lookup.match` for a batch of texts on a device: shapes are static and nothing waits for the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.prompt_lookup.match import PLACES, REACH

GROUP = 8  # marks of one byte in a number of 64 bits


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
    """length and start, int32 [B], as in `mtpc.prompt_lookup.match.Match`."""

    length: Tensor
    start: Tensor


def longest_matches(texts: Texts, longest: int, reach: int = REACH) -> Matches:
    """`History.longest_match` of each text.

    A few passes over the last ``reach`` places of the table, used or not, find where the last two tokens were before;
    only the latest `PLACES` of these are compared further.  It takes at most 8 bytes of memory for each place and row.
    """
    width = min(texts.table.shape[1], reach)
    starts = (texts.lengths - width).clamp_min(0)
    recent = texts.table.unfold(1, width, 1)[texts.rows, starts.long()]  # [B, W], of which each text uses a part
    ends = (texts.lengths - starts)[:, None] - 1  # [B, 1], of the last token
    back = _counted(min(longest, width), texts)
    suffix = recent.gather(1, (ends - back).clamp_min(0).long())  # [B, longest], the last token first
    found = recent == suffix[:, :1]
    found &= _counted(width, texts) < ends
    if len(back) > 1:
        pairs = recent[:, :-1] == suffix[:, 1:2]
        pairs &= found[:, 1:]
        found &= ~pairs.any(1, keepdim=True)
        found[:, 1:] |= pairs
    places = _latest(found, PLACES)
    before = (places[:, :, None] - back).flatten(1)  # [B, M * longest]
    same = recent.gather(1, before.clamp_min(0).long()).view(*places.shape, -1) == suffix[:, None]
    same &= (before >= 0).view_as(same)
    lengths = same.cumprod(2, dtype=torch.int32).sum(2, dtype=torch.int32)
    best = (lengths * width + places).amax(1).clamp_min(0)  # the last of the longest
    return Matches(best // width, starts + best % width + 1)


def _latest(marked: Tensor, count: int) -> Tensor:
    """The last marked places of each row, at most so many, then -1: bool [B, W] -> int32 [B, M].

    The last marked groups of eight places are found first, each of which is one number.
    """
    groups = F.pad(marked, (0, -marked.shape[1] % GROUP)).view(torch.int64)  # [B, W / 8]
    latest = _last(groups != 0, torch.arange(groups.shape[1], dtype=torch.int32, device=marked.device), count)
    places = (latest[:, :, None] * GROUP + torch.arange(GROUP, dtype=torch.int32, device=marked.device)).flatten(1)
    marks = groups.gather(1, latest.clamp_min(0).long()).view(torch.bool)
    return _last(marks & (places >= 0), places, count)


def _last(marked: Tensor, places: Tensor, count: int) -> Tensor:
    return torch.where(marked, places, -1).topk(min(count, marked.shape[1])).values


def continuations(texts: Texts, matches: Matches, count: int) -> Tensor:
    """`continuation` of each text, int64 [B, count]; any tokens where nothing matches."""
    period = (texts.lengths - matches.start).clamp_min(1)
    return texts.tokens(matches.start[:, None] + _counted(count, texts) % period[:, None]).long()


def _counted(count: int, texts: Texts) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=texts.table.device)
