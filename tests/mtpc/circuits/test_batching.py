"""A batch is its rows: every operation on B rows equals the operation on each row alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from mtpc.circuits import CircuitParams
from tests.oracles import circuit_ops
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
        (partial(circuit_ops.log_prob, circuit), (x,)),
        (partial(circuit_ops.prefix_log_probs, circuit), (x,)),
        (partial(circuit_ops.conditionals, circuit), (x,)),
        (partial(circuit_ops.condition, circuit), (x[:, 0],)),
        (partial(circuit_ops.sample, circuit), (noise,)),
        (partial(circuit_ops.greedy, circuit), ()),
        (partial(circuit_ops.greedy, circuit), (x[:, 0],)),
        (circuit_ops.temper, (temperature,)),
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
    assert circuit_ops.sample(case.circuit, params, noise).shape == (0, case.window)
    assert circuit_ops.greedy(case.circuit, params).shape == (0, case.window)
