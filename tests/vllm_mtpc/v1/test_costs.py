"""Warnings when decoding steps are timed."""

from types import SimpleNamespace

import pytest
import torch

from mtpc.draft_length.cost import StepCost
from vllm_mtpc.v1 import costs


@pytest.mark.parametrize(
    ("dtype", "advice", "rank", "warned"),
    [
        ("bfloat16", "Advice.", 0, 1),
        ("bfloat16", "Advice.", 1, 0),
        ("float32", "Advice.", 0, 0),
        ("bfloat16", "", 0, 0),
    ],
)
def test_a_slow_dtype_is_warned_of(
    dtype: str, advice: str, rank: int, warned: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(costs, "get_tensor_model_parallel_rank", lambda: rank)
    monkeypatch.setattr(costs, "float32_advice", lambda: advice)
    monkeypatch.setattr(costs, "sampling_of", lambda *_: None)
    monkeypatch.setattr(costs, "measure_costs", lambda *_: StepCost())
    monkeypatch.setattr(costs.logger, "propagate", True)
    runner = SimpleNamespace(dtype=getattr(torch, dtype), max_num_tokens=64)
    assert costs.measured_costs(runner, 4, 3, None, None) == StepCost()
    assert [record.message for record in caplog.records] == ["Advice."] * warned
