"""Whatever steps the layer leaves out, it reads each token of each request once, in order, at its own place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from vllm.v1.attention.backend import CommonAttentionMetadata

from vllm_mtpc.backlog import APART, LONGEST, Backlog, Pass

BLOCK, BLOCKS, CAPACITY = 16, 40, 300


class Read(NamedTuple):
    """What the layer is given of one token."""

    state: int
    following: int
    position: int
    slot: int


class World:
    """Requests whose state at position p is 1000 p + number, and whose token at p is 1000 p + 500 + number."""

    def __init__(self, requests: int) -> None:
        torch.manual_seed(0)
        self.blocks = torch.randperm(requests * BLOCKS).view(requests, BLOCKS).int()
        self.done = [0] * requests
        self.seen: list[list[Read]] = [[] for _ in range(requests)]

    def step(self, rows: list[int], accepted: list[int], rejected: list[int]) -> Pass:
        """What vLLM says after a step that has read so many tokens of these requests, and as many more in vain."""
        counts = [one + other for one, other in zip(accepted, rejected, strict=True)]
        starts = torch.tensor([0, *counts]).cumsum(0).int()
        where = [(row, self.done[row] + i) for row, count in zip(rows, counts, strict=True) for i in range(count)]
        lasts = starts[:-1] + torch.tensor(accepted).int() - 1
        for row, count in zip(rows, accepted, strict=True):
            self.done[row] += count
        positions = torch.tensor([position for _, position in where])
        metadata = SimpleNamespace(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            max_query_len=max(counts),
            block_table_tensor=self.blocks[rows],
            slot_mapping=torch.tensor([self.slot(*one) for one in where]),
        )
        return Pass(
            torch.tensor([self.token(*one) for one in where]).int(),
            positions,
            torch.tensor([[1000.0 * position + row] for row, position in where]),
            torch.tensor([self.token(row, self.done[row]) for row in rows]).int(),
            lasts if sum(rejected) else None,
            metadata,
            torch.tensor(rejected) if sum(rejected) else None,
        )

    def slot(self, row: int, position: int) -> int:
        """Of the cache."""
        return int(self.blocks[row, position // BLOCK]) * BLOCK + position % BLOCK

    def token(self, row: int, position: int) -> int:
        """Of a request."""
        return 1000 * position + 500 + row

    def read(self, one: Pass) -> None:
        """As vLLM's `set_inputs_first_pass` prepares it; rejected tokens count for nothing."""
        metadata = one.common_attn_metadata
        assert len(one.target_token_ids) <= CAPACITY
        if isinstance(metadata, CommonAttentionMetadata):  # of our own making
            lengths, ends = (
                metadata.query_start_loc_cpu.diff(),
                one.target_positions[metadata.query_start_loc[1:] - 1] + 1,
            )
            assert torch.equal(metadata.seq_lens, ends.int())
            assert (metadata.max_query_len, metadata.max_seq_len) == (int(lengths.max()), int(ends.max()))
            assert (metadata.num_reqs, metadata.num_actual_tokens) == (len(ends), len(one.target_token_ids))
        starts, lasts = metadata.query_start_loc.tolist(), one.token_indices_to_sample
        lasts = metadata.query_start_loc[1:] - 1 if lasts is None else lasts
        following = one.target_token_ids.roll(-1)
        following[lasts.long()] = one.next_token_ids
        for start, last, blocks in zip(starts[:-1], lasts.tolist(), metadata.block_table_tensor, strict=True):
            (row,) = (self.blocks == blocks).all(1).nonzero().flatten().tolist()
            for i in range(start, last + 1):
                state, position = int(one.target_hidden_states[i]), int(one.target_positions[i])
                self.seen[row].append(Read(state, int(following[i]), position, int(metadata.slot_mapping[i])))

    def expected(self, row: int, begin: int = 0) -> list[Read]:
        """All that was accepted of a request from a position on."""
        return [
            Read(1000 * position + row, self.token(row, position + 1), position, self.slot(row, position))
            for position in range(begin, self.done[row])
        ]


@pytest.mark.parametrize("requests", [1, 2, 5])
def test_every_token_is_read_once(requests: int) -> None:
    world, backlog, left_out = World(requests), Backlog(CAPACITY, BLOCK), 0
    rows, chosen = list(range(requests)), torch.Generator().manual_seed(requests)
    for number in range(60):
        accepted, rejected = torch.randint(1, 8, (2, requests), generator=chosen).tolist()
        rejected = [max(0, count - 3) for count in rejected] if number % 3 else [0] * requests
        drafts = number % 7 == 5 or number == 59
        passes = backlog.passes([str(row) for row in rows], world.step(rows, accepted, rejected), drafts)
        for one in passes:
            world.read(one)
        left_out += not passes
        assert passes or not drafts
        assert all(one.end - one.start <= LONGEST for one in backlog.waiting.values())
        if drafts:
            assert world.seen == [world.expected(row) for row in rows]
    assert left_out > 30


@pytest.mark.parametrize("longest", [LONGEST, CAPACITY])
def test_steps_that_nobody_prepares_are_read_as_well(longest: int) -> None:
    """One token of each request at a time, in tensors that vLLM uses again; the second request comes later."""
    world, backlog, left_out = World(2), Backlog(CAPACITY, BLOCK, longest), 0
    backlog.passes(["0"], world.step([0], [3], [0]), False)
    for number in range(200):
        rows = [0] if number < 7 else [1, 0]
        names, given = [str(row) for row in rows], world.step(rows, [1] * len(rows), [0] * len(rows))
        if number % 9 and number != 7 and backlog.has_room(names):
            following = given.next_token_ids
            backlog.wait(names, given.target_positions, given.target_hidden_states, following)
            for used in (given.target_positions, given.target_hidden_states, following):
                used.zero_()
            left_out += 1
            continue
        for one in backlog.passes(names, given, number == 198):
            world.read(one)
        if number == 198:
            assert world.seen == [world.expected(row) for row in range(2)]
    assert left_out > 150
    assert sum(one.end - one.start for one in backlog.waiting.values()) <= CAPACITY


def test_a_prefix_that_may_be_used_again_waits_no_longer_there_either() -> None:
    world, backlog, waited = World(1), Backlog(CAPACITY, BLOCK), 1
    assert backlog.passes(["0"], world.step([0], [1], [0]), False) == []
    while backlog.has_room(["0"]):
        given = world.step([0], [1], [0])
        backlog.wait(["0"], given.target_positions, given.target_hidden_states, given.next_token_ids)
        waited += 1
    assert waited == LONGEST
    (one,) = backlog.passes(["0"], world.step([0], [1], [0]), False)
    world.read(one)
    assert world.seen == [world.expected(0)]


def test_what_waits_never_exceeds_what_can_be_read_at_once() -> None:
    world, backlog = World(2), Backlog(CAPACITY, BLOCK, CAPACITY)
    waited = 0
    while backlog.has_room(["0", "1"]):
        given = world.step([0, 1], [1, 1], [0, 0])
        backlog.wait(["0", "1"], given.target_positions, given.target_hidden_states, given.next_token_ids)
        waited += 1
    assert waited == CAPACITY // 2
    for one in backlog.passes(["0", "1"], world.step([0, 1], [1, 1], [0, 0]), True):
        world.read(one)
    assert world.seen == [world.expected(0), world.expected(1)]


def test_a_step_that_drafts_with_nothing_waiting_is_vllms_own() -> None:
    world, backlog = World(2), Backlog(CAPACITY, BLOCK)
    given = world.step([0, 1], [3, 5], [0, 0])
    assert backlog.passes(["0", "1"], given, True) == [given]


@pytest.mark.parametrize("waits", [True, False])
def test_what_nothing_is_drafted_after_is_read_apart(waits: bool) -> None:
    """But for what is too little to be worth it; the pass that drafts has each request's last token."""
    world, backlog, names = World(2), Backlog(CAPACITY, BLOCK, 2 * CAPACITY, apart=True), ["0", "1"]
    given = world.step([0, 1], [APART - 3, 5], [0, 0])
    assert backlog.passes(names, given, True) == [given]
    world.read(given)
    if waits:
        assert backlog.passes(names, world.step([0, 1], [APART, 40], [0, 0]), False) == []
    passes = backlog.passes(names, world.step([0, 1], [APART + 1, 7], [0, 3]), True)
    for one in passes:
        world.read(one)
    assert [len(one.target_positions) for one in passes] == [2 * APART + 46 if waits else APART + 6, 2]
    assert world.seen == [world.expected(row) for row in range(2)]


def test_no_pass_is_longer_than_what_can_be_read_at_once() -> None:
    """Also where that is less than what a pass that drafts may read besides."""
    world, backlog = World(1), Backlog(capacity := APART - 16, BLOCK, CAPACITY, CAPACITY, apart=True)
    assert backlog.passes(["0"], world.step([0], [APART - 3], [0]), False) == []
    passes = backlog.passes(["0"], world.step([0], [2], [0]), True)
    for one in passes:
        world.read(one)
    assert [len(one.target_positions) for one in passes] == [capacity, APART - 1 - capacity]
    assert world.seen == [world.expected(0)]


def test_many_short_steps_are_vllms_own() -> None:
    """However many tokens their requests verify together."""
    world, backlog = World(20), Backlog(CAPACITY, BLOCK, apart=True)
    given = world.step(list(range(20)), [3] * 20, [5] * 20)
    assert backlog.passes([str(row) for row in range(20)], given, True) == [given]


def test_a_long_prompt_does_not_wait() -> None:
    world, backlog = World(1), Backlog(CAPACITY, BLOCK)
    given = world.step([0], [LONGEST + 1], [0])
    assert backlog.passes(["0"], given, False) == [given]


def test_where_no_prefix_is_used_again_a_prompt_waits_until_something_is_drafted_after_it() -> None:
    world, backlog = World(2), Backlog(CAPACITY, BLOCK, longest=CAPACITY)
    assert backlog.passes(["0", "1"], world.step([0, 1], [LONGEST + 1, 9], [0, 0]), False) == []
    assert backlog.passes(["0", "1"], world.step([0, 1], [1, 2], [2, 0]), False) == []
    (one,) = backlog.passes(["0", "1"], world.step([0, 1], [3, 1], [0, 1]), True)
    world.read(one)
    assert world.seen == [world.expected(0), world.expected(1)]


def test_what_waits_is_read_first_where_there_is_no_room_for_both() -> None:
    world, backlog = World(2), Backlog(CAPACITY, BLOCK)
    assert backlog.passes(["0"], world.step([0], [20], [0]), False) == []
    passes = backlog.passes(["0", "1"], world.step([0, 1], [1, CAPACITY - 1], [0, 0]), False)
    for one in passes:
        world.read(one)
    assert len(passes) == 2
    assert world.seen == [world.expected(0), world.expected(1)]


def test_more_may_wait_than_is_read_at_once() -> None:
    """Then it is read in several passes, of which the last one has the last token of each request."""
    world, backlog = World(3), Backlog(CAPACITY, BLOCK, 2 * CAPACITY, 2 * CAPACITY)
    names = ["0", "1", "2"]
    for rows, counts in (([0, 1], [CAPACITY - 50, 40]), ([1, 0], [7, 160]), ([0, 1, 2], [1, 1, 20])):
        given = world.step(rows, counts, [0] * len(rows))
        assert backlog.passes([str(row) for row in rows], given, False) == []
    assert backlog.has_room(names)
    passes = backlog.passes(names, world.step([0, 1, 2], [1, 2, 1], [0, 0, 1]), True)
    for one in passes:
        world.read(one)
    assert len(passes) == 2
    assert passes[-1].common_attn_metadata.num_reqs == 3
    assert world.seen == [world.expected(row) for row in range(3)]
    assert not backlog.waiting


def test_what_waits_of_all_has_an_end() -> None:
    world, backlog = World(3), Backlog(CAPACITY, BLOCK, 2 * CAPACITY, CAPACITY + 50)
    assert backlog.passes(["0", "1"], world.step([0, 1], [CAPACITY - 10, 10], [0, 0]), False) == []
    passes = backlog.passes(["0", "1", "2"], world.step([0, 1, 2], [1, 1, 100], [0, 0, 0]), False)
    assert len(passes) == 2
    for one in passes:
        world.read(one)
    assert world.seen == [world.expected(row) for row in range(3)]


def test_a_request_that_went_back_is_read_from_there() -> None:
    """After preemption a request's tokens are read again; what waited before is not mixed with them."""
    world, backlog = World(1), Backlog(CAPACITY, BLOCK)
    assert backlog.passes(["0"], world.step([0], [20], [0]), False) == []
    world.done[0] = 16
    for one in backlog.passes(["0"], world.step([0], [5], [0]), True):
        world.read(one)
    assert world.seen == [world.expected(0, begin=16)]


def test_what_waits_of_a_request_that_is_gone_is_forgotten() -> None:
    world, backlog = World(2), Backlog(CAPACITY, BLOCK)
    assert backlog.passes(["0", "1"], world.step([0, 1], [5, 5], [0, 0]), False) == []
    backlog.passes(["1"], world.step([1], [1], [0]), False)
    assert set(backlog.waiting) == {"1"}
