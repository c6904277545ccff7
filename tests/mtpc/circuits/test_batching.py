"""A batch is its rows: every operation on B rows equals the operation on each row alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtpc.circuits import CircuitParams, temper
from tests.oracles.cases import ONE_OF_EACH, Case, take_row

ROWS = 5
CASES = [*ONE_OF_EACH, *(Case(kind, 7, 1 if kind == "ff" else 4, 11) for kind in ("ff", "cp", "hmm", "btree"))]


def flat(result: torch.Tensor | CircuitParams) -> list[torch.Tensor]:
    """The tensors of a result."""
    return [result] if isinstance(result, torch.Tensor) else [result.leaves, *result.sums]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_batch_equals_rows(case: Case) -> None:
    generator = torch.Generator().manual_seed(0)
    circuit, params = case.circuit, case.params(rows=ROWS)
    x = torch.randint(case.vocabulary, (ROWS, case.window), generator=generator)
    noise = torch.rand(ROWS, case.window, generator=generator)
    temperature = torch.rand(ROWS, generator=generator) + 0.5
    operations: list[tuple[Any, tuple[torch.Tensor, ...]]] = [
        (circuit.log_prob, (x,)),
        (circuit.prefix_log_probs, (x,)),
        (circuit.conditionals, (x,)),
        (circuit.condition, (x[:, 0],)),
        (circuit.sample, (noise,)),
        (circuit.greedy, ()),
        (circuit.greedy, (x[:, 0],)),
        (temper, (temperature,)),
    ]
    for operation, arguments in operations:
        together = flat(operation(params, *arguments))
        for row in range(ROWS):
            alone = flat(operation(take_row(params, row), *(a[row : row + 1] for a in arguments)))
            for got, expected in zip(together, alone, strict=True):
                torch.testing.assert_close(got[row : row + 1], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_empty_batch(case: Case) -> None:
    params = take_row(case.params(), 0, 0)
    noise = torch.zeros(0, case.window)
    assert case.circuit.sample(params, noise).shape == (0, case.window)
    assert case.circuit.greedy(params).shape == (0, case.window)
