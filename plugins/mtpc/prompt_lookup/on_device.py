"""Prompt lookup for a batch on a device (see `mtpc.prompt_lookup.match`) with static shapes and no host waits."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.prompt_lookup.match import MAX_OCCURRENCES, REACH

GROUP = 8  # one-byte marks in a 64-bit number


class DeviceTexts(NamedTuple):
    """Texts in a table on the device whose rows are longer than the texts.

    Attributes:
        table: Token ids, int32 [S, T].
        rows: Row of each text, int64 [B].
        lengths: Tokens of each text, int32 [B].
    """

    table: Tensor
    rows: Tensor
    lengths: Tensor

    def tokens(self, positions: Tensor) -> Tensor:
        """Return tokens at positions of each text, int32 [B, m]; any token outside the table.

        Args:
            positions: Positions, int [B, m].
        """
        return self.table[self.rows[:, None], positions.clamp(0, self.table.shape[1] - 1)]


class Matches(NamedTuple):
    """Matches of a batch, as `mtpc.prompt_lookup.match.Match`.

    Attributes:
        length: Matching tokens of each text, int32 [B]; 0: there is no match.
        start: Index of the token that followed the occurrence, int32 [B].
    """

    length: Tensor
    start: Tensor


def longest_matches(texts: DeviceTexts, longest: int, reach: int = REACH) -> Matches:
    """Find `History.longest_match` of each text.

    A few passes over the last ``reach`` columns find where the last two tokens were before.
    Only the latest `MAX_OCCURRENCES` of these are compared further.
    Memory is at most 8 bytes per column and row.

    Args:
        texts: The texts.
        longest: Tokens of a match at most.
        reach: Columns at the end of each text that are searched.

    Returns:
        The matches.
    """
    width = min(texts.table.shape[1], reach)
    starts = (texts.lengths - width).clamp_min(0)
    recent = texts.table.unfold(1, width, 1)[texts.rows, starts.long()]  # [B, W]; each text fills a part
    ends = (texts.lengths - starts)[:, None] - 1  # [B, 1], index of the last token
    back = _range(min(longest, width), texts)
    suffix = recent.gather(1, (ends - back).clamp_min(0).long())  # [B, longest], the last token first
    found = recent == suffix[:, :1]
    found &= _range(width, texts) < ends
    if len(back) > 1:
        pairs = recent[:, :-1] == suffix[:, 1:2]
        pairs &= found[:, 1:]
        found &= ~pairs.any(1, keepdim=True)
        found[:, 1:] |= pairs
    positions = _latest(found, MAX_OCCURRENCES)
    before = (positions[:, :, None] - back).flatten(1)  # [B, M * longest]
    same = recent.gather(1, before.clamp_min(0).long()).view(*positions.shape, -1) == suffix[:, None]
    same &= (before >= 0).view_as(same)
    lengths = same.cumprod(2, dtype=torch.int32).sum(2, dtype=torch.int32)
    best = (lengths * width + positions).amax(1).clamp_min(0)  # the latest of the longest
    return Matches(best // width, starts + best % width + 1)


def _latest(marked: Tensor, count: int) -> Tensor:
    """Return the last marked columns of each row, then -1: bool [B, W] -> int32 [B, M], M at most ``count``.

    Groups of eight columns are found first, each viewed as one number.
    """
    groups = F.pad(marked, (0, -marked.shape[1] % GROUP)).view(torch.int64)  # [B, W / 8]
    latest = _last(groups != 0, torch.arange(groups.shape[1], dtype=torch.int32, device=marked.device), count)
    positions = (latest[:, :, None] * GROUP + torch.arange(GROUP, dtype=torch.int32, device=marked.device)).flatten(1)
    marks = groups.gather(1, latest.clamp_min(0).long()).view(torch.bool)
    return _last(marks & (positions >= 0), positions, count)


def _last(marked: Tensor, positions: Tensor, count: int) -> Tensor:
    return torch.where(marked, positions, -1).topk(min(count, marked.shape[1])).values


def continuations(texts: DeviceTexts, matches: Matches, count: int) -> Tensor:
    """Return `History.continuation` of each text, int64 [B, count]; any tokens where nothing matches.

    Args:
        texts: The texts.
        matches: Their matches.
        count: Number of tokens.
    """
    period = (texts.lengths - matches.start).clamp_min(1)
    return texts.tokens(matches.start[:, None] + _range(count, texts) % period[:, None]).long()


def _range(count: int, texts: DeviceTexts) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=texts.table.device)
