"""The fake CUDA graph finds calls that a real graph would replay wrongly, and replays correct ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.support.fake_graphs import FakeGraph, record, spoil


def test_a_replay_computes_with_the_buffers() -> None:
    buffer, kept, total = torch.ones(3), torch.zeros(3), torch.zeros(())

    def call() -> Tensor:
        doubled = buffer * 2
        kept[1:] = doubled[1:]
        total.add_(doubled.sum())
        return doubled + torch.arange(3)

    replay, made = record(call)
    for start in (5.0, 7.0):
        buffer.copy_(torch.arange(3) + start)
        total.zero_()
        replay()
        assert torch.equal(made, 2 * buffer + torch.arange(3))
        assert kept.tolist() == [0.0, *(2 * buffer[1:]).tolist()]
        assert total == 2 * buffer.sum()


def test_what_is_kept_from_scratch_memory_is_spoilt() -> None:
    """The control: a drafter that keeps the logits of a captured step, and reads them after a replay."""
    drafter, buffer = SimpleNamespace(), torch.ones(3)

    def call() -> Tensor:
        drafter.logits, drafter.best = buffer * 2, (buffer * 2).argmax()
        return drafter.logits + 1

    replay, made = record(call)
    replay()
    assert made.tolist() == [3.0] * 3
    assert drafter.logits.isnan().all()
    assert drafter.best.item() > 1 << 60


def test_memory_that_was_not_written_is_no_number() -> None:
    buffer = torch.ones(3)
    replay, made = record(lambda: torch.empty(3) + buffer)
    replay()
    assert made.isnan().all()


def test_there_is_no_output_before_the_first_replay() -> None:
    buffer = torch.ones(3)
    replay, made = record(lambda: buffer * 2)
    assert made.isnan().all()
    replay()
    assert made.tolist() == [2.0] * 3


def test_an_input_that_is_no_buffer_is_missed() -> None:
    batch = SimpleNamespace(states=torch.ones(3))
    replay, _ = record(lambda: batch.states * 2)
    replay()
    batch.states = torch.ones(3)  # as if of the next step
    with pytest.raises(AssertionError, match="nobody holds"):
        replay()


def test_numbers_of_python_are_those_of_the_capture() -> None:
    steps, buffer = SimpleNamespace(done=0), torch.zeros(3)
    replay, made = record(lambda: buffer + steps.done)
    steps.done = 5
    replay()
    assert made.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda buffer: buffer.argmax().item(), "waits for a value"),
        (lambda buffer: buffer * 2 if buffer.any() else buffer, "waits for a value"),
        (lambda buffer: buffer + torch.tensor([1.0, 2.0, 3.0]), "takes numbers from the host"),
        (lambda buffer: buffer.nonzero(), "depends on values"),
        (lambda buffer: buffer[buffer > 0], "depends on values"),
    ],
    ids=["item", "if", "constant", "nonzero", "mask"],
)
def test_what_no_graph_can_hold_is_refused(call: object, reason: str) -> None:
    buffer = torch.ones(3)
    with pytest.raises(AssertionError, match=reason):
        FakeGraph().capture(lambda: call(buffer))  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_spoilt_number_is_none(dtype: torch.dtype) -> None:
    numbers = torch.ones(3, dtype=dtype)
    spoil(numbers.untyped_storage())
    assert numbers.isnan().all()
