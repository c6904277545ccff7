"""Warnings when decoding steps are timed."""

from types import SimpleNamespace

import pytest
import torch

from mtpc.draft_length.cost import Sampling, StepCost
from tests.vllm_mtpc.v1.step_runner import StepRunner
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


def test_logits_are_computed_of_rows_that_adapters_are_set_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than requests."""
    monkeypatch.setattr(costs, "seconds_of_first_rank", lambda seconds: seconds)
    monkeypatch.setattr(costs, "sampling_of", lambda *_: Sampling(lambda size: None, lambda size: None, None))
    rows = set()

    def compute_logits(states: torch.Tensor) -> None:
        assert len(states) == runner.mapped
        rows.add(len(states))

    runner = StepRunner(
        lora_config="any",
        model=SimpleNamespace(compute_logits=compute_logits),
        _dummy_run=lambda tokens, force_attention: (torch.zeros(tokens, 1), None),
    )
    costs.measured_costs(runner, 2, 7, None, None)
    assert max(rows) == 16
