"""What the serial part has not read yet: its keys and values of these tokens are computed when it drafts again.

A step in which copying alone pays need not run the serial part's layer.  What the layer would have read waits, and is
read with what comes next: the same keys and values, of one pass instead of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.v1.attention.backend import CommonAttentionMetadata

from vllm_mtpc.last_accepted import last_accepted

APART = 64  # tokens of a pass that drafts, at most, where keys and values of others are cheaper by themselves
LONGEST = 64  # tokens that wait of a request whose prefix may be used again: at most so many are missing there
MEMORY = 64 << 20  # bytes of states that wait of all requests, at most, where they are more than what is read at once


class Pass(NamedTuple):
    """What the layer reads at once, as arguments of vLLM's ``propose``; see there."""

    target_token_ids: Tensor
    target_positions: Tensor
    target_hidden_states: Tensor
    next_token_ids: Tensor
    token_indices_to_sample: Tensor | None
    common_attn_metadata: Any
    num_rejected_tokens_gpu: Tensor | None

    def lasts(self) -> tuple[Tensor, Tensor]:
        """See `last_accepted`."""
        return last_accepted(self.target_positions, self.token_indices_to_sample, self.common_attn_metadata)

    def following(self, rows: Tensor) -> Tensor:
        """The token after each, int [T], of what is accepted.  rows: of each request's last accepted one, [B]."""
        following = self.target_token_ids.roll(-1)
        following[rows.long()] = self.next_token_ids
        return following


@dataclass
class Waiting:
    """Tokens of a request, from one position to another, in the pieces in which they came.

    states: the target's, [n, d] each.  following: the token after each, int32 [n] each.
    """

    start: int
    end: int
    states: list[Tensor] = field(default_factory=list)
    following: list[Tensor] = field(default_factory=list)

    def first(self, count: int) -> Waiting:
        """So many tokens, which wait here no more."""
        states, following = torch.cat(self.states), torch.cat(self.following)
        taken = Waiting(self.start, self.start + count, [states[:count]], [following[:count]])
        self.start, self.states, self.following = taken.end, [states[count:]], [following[count:]]
        return taken


class Single(NamedTuple):
    """A step that said one token to each request, see `Backlog.wait`."""

    ids: tuple[str, ...]
    positions: Tensor
    states: Tensor
    following: Tensor


class Backlog:
    """What waits, by request.

    capacity: tokens that the layer can read at once.  block_size: tokens of a block of its keys and values.  longest:
    tokens of a request that wait, and room: of all; where no prefix is used again, what is never drafted after is never
    read.  apart: whether what is read before a pass that drafts is cheaper than in it.
    """

    def __init__(
        self, capacity: int, block_size: int, longest: int = LONGEST, room: int | None = None, apart: bool = False
    ) -> None:
        self.capacity, self.block_size, self.longest, self.apart = capacity, block_size, longest, apart
        self.room = capacity if room is None else room
        self.waiting: dict[str, Waiting] = {}
        self.unsorted: list[Single] = []  # steps that said one token to each request

    def has_room(self, ids: Sequence[str]) -> bool:
        """Whether one more token of each request may `wait`."""
        lengths, more = [self._length(name) for name in ids], 1 + len(self.unsorted)
        return max(lengths) + more <= self.longest and sum(lengths) + more * len(ids) <= self.room

    def wait(self, ids: Sequence[str], positions: Tensor, states: Tensor, following: Tensor) -> None:
        """One token of each request waits, in next to no time.

        positions: int64 [B].  states: the target's of these, [B, d].  following: what it has said after them, int [B].
        All of this may be overwritten later.
        """
        self.unsorted.append(
            Single(tuple(ids), positions.clone(), states.clone(), following.to(torch.int32, copy=True))
        )

    def passes(self, ids: Sequence[str], given: Pass, drafts: bool) -> list[Pass]:
        """What the layer has to read after a step of these requests; of the last pass it drafts.

        given: what the target has read in this step.  drafts: whether anything is to be drafted.  What waits of a
        request that a step leaves out, because it is finished or was preempted, is forgotten.
        """
        for one in self.unsorted:
            rows = zip(one.ids, one.positions.tolist(), one.states.split(1), one.following.split(1), strict=True)
            for name, position, state, token in rows:
                self._append(name, position + 1, state, token)
        self.unsorted.clear()
        self.waiting = {name: self.waiting[name] for name in ids if name in self.waiting}
        longest = given.common_attn_metadata.max_query_len
        if not self.waiting and (not self.apart or longest <= APART if drafts else longest > self.longest):
            return [given]
        self._add(ids, given)
        lengths = [self._length(name) for name in ids]
        if not drafts and max(lengths) <= self.longest and sum(lengths) <= self.room:
            return []
        passes = []
        most = min(self.capacity, len(ids) + APART) if self.apart and drafts else self.capacity
        while sum(lengths) > most:
            counts, left = [], self.capacity
            for length in lengths:
                counts.append(min(length - 1, left))  # the last one is for the pass that drafts
                left -= counts[-1]
            passes.append(self._taken(counts, ids, given))
            lengths = [length - count for length, count in zip(lengths, counts, strict=True)]
        return [*passes, self._taken(lengths, ids, given)]

    def _length(self, name: str) -> int:
        waiting = self.waiting.get(name)
        return waiting.end - waiting.start if waiting is not None else 0

    def _add(self, ids: Sequence[str], given: Pass) -> None:
        """All that the target has read and accepted."""
        starts = given.common_attn_metadata.query_start_loc_cpu[: len(ids)].tolist()
        rows, ends = given.lasts()
        lasts, ends = torch.stack([rows.long(), ends]).tolist()  # on a GPU the only thing that is waited for
        following = given.following(rows)
        for name, start, last, end in zip(ids, starts, lasts, ends, strict=True):
            accepted = slice(start, last + 1)
            self._append(name, end + 1, given.target_hidden_states[accepted].clone(), following[accepted])

    def _append(self, name: str, end: int, states: Tensor, following: Tensor) -> None:
        """A piece of a request up to a position; where that does not go on from what waits, it waits alone."""
        waiting = self.waiting.get(name)
        if waiting is None or waiting.end != end - len(states):
            self.waiting[name] = waiting = Waiting(end - len(states), end)
        waiting.end = end
        waiting.states.append(states)
        waiting.following.append(following)

    def _taken(self, counts: Sequence[int], ids: Sequence[str], given: Pass) -> Pass:
        """The first so many tokens that wait of each row of the batch, as one pass of those that have any."""
        rows = [row for row, count in enumerate(counts) if count]
        taken = [self.waiting[ids[row]].first(counts[row]) for row in rows]
        self.waiting = {name: one for name, one in self.waiting.items() if one.start < one.end}
        device, table = given.target_hidden_states.device, given.common_attn_metadata.block_table_tensor
        lengths = torch.tensor([one.end - one.start for one in taken])
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
        ends = torch.tensor([one.end for one in taken], dtype=torch.int32)
        positions = torch.cat([torch.arange(one.start, one.end) for one in taken]).to(device)
        row_of = torch.tensor(rows).repeat_interleave(lengths).to(device)
        slots = table[row_of, positions // self.block_size].long() * self.block_size + positions % self.block_size
        following = torch.cat([piece for one in taken for piece in one.following])
        metadata = CommonAttentionMetadata(
            query_start_loc=starts.to(device),
            query_start_loc_cpu=starts,
            seq_lens=ends.to(device),
            seq_lens_cpu_upper_bound=ends.clone(),
            num_reqs=len(taken),
            num_actual_tokens=len(following),
            max_query_len=int(lengths.max()),
            max_seq_len=int(ends.max()),
            block_table_tensor=table[torch.tensor(rows, device=device)],
            slot_mapping=slots,
            causal=True,
        )
        return Pass(
            following.roll(1),  # vLLM puts each at the place of the token before it
            positions,
            torch.cat([piece for one in taken for piece in one.states]),
            following[metadata.query_start_loc[1:].long() - 1],
            None,
            metadata,
            None,
        )
