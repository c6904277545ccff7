"""The CPU fixes: right results, and the original function wherever it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vllm_mtpc.cpu.fixes import _guard_constraints, _guard_expand, _guard_recovered, expand

COUNTS = torch.tensor([2, 2, 5], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_expand(dtype: torch.dtype) -> None:
    found = expand(torch.tensor([1, 0, 3], dtype=dtype), COUNTS, 5, 0, 7)
    assert found.dtype == dtype
    assert found.tolist() == [1, 1, 3, 3, 3]
    assert expand(torch.tensor([0, 2, 4], dtype=dtype), COUNTS, 5, 0, 7).tolist() == [7, 7, 4, 4, 4]


def test_a_faulty_original_is_replaced() -> None:
    calls = []

    def faulty(x: Any, *_: Any) -> Any:
        calls.append(x)
        return torch.empty(6).fill_(9)

    guarded = _guard_expand(faulty)
    for _ in range(3):
        assert guarded(torch.tensor([1.0, 2.0, 3.0]), COUNTS, 5).tolist() == [1, 1, 3, 3, 3]
    assert len(calls) == 1


def test_a_sound_original_is_kept() -> None:
    calls = []

    def sound(*arguments: Any) -> Any:
        calls.append(arguments)
        return expand(*arguments)

    guarded = _guard_expand(sound)
    for _ in range(3):
        guarded(torch.tensor([1.0, 2.0, 3.0]), COUNTS, 5)
    assert len(calls) == 4


def test_a_step_without_drafts() -> None:
    def faulty(logits: torch.Tensor, counts: Any, metadata: Any) -> torch.Tensor:
        raise RuntimeError("max() of nothing")

    none = torch.empty(0, 4)
    assert _guard_constraints(faulty)(none, None, None) is none
    with pytest.raises(RuntimeError):
        _guard_constraints(faulty)(torch.empty(1, 4), None, None)


def test_nothing_is_drawn_where_no_draft_can_be_rejected() -> None:
    def original(longest: int, counts: list[int], ends: Any, drafts: torch.Tensor, *others: Any) -> torch.Tensor:
        drawn.append(others)
        return drafts + 1

    drawn: list[tuple[Any, ...]] = []
    guarded = _guard_recovered(original)
    none = guarded(3, [0, 0], None, torch.empty(0, dtype=torch.int32), "probs")
    assert none.shape == (0,) and none.dtype == torch.int32 and not drawn
    assert guarded(3, [1, 0], None, torch.tensor([4]), "probs").tolist() == [5] and drawn == [("probs",)]
