"""Temperature on every leaf and sum distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mtpc.circuits import CircuitParams
from tests.oracles import circuit_ops
from tests.oracles.cases import KINDS, ONE_OF_EACH, Case, cases_of, take_row
from tests.oracles.enumeration import enumerate_windows


def sharpened(weights: torch.Tensor, temperature: float) -> np.ndarray:
    """p^(1/T), renormalised, of one row."""
    powers = weights.exp().numpy() ** (1.0 / temperature)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
@pytest.mark.parametrize("kind", KINDS)
def test_tempered_circuit_equals_the_tempered_oracle(kind: str, temperature: float, subtests: pytest.Subtests) -> None:
    for case in (case for case in cases_of(kind) if case.window in (1, 2, 4)):
        with subtests.test(str(case)):
            params, windows = case.params(rows=1), case.windows()
            tempered = circuit_ops.temper(params, torch.tensor([temperature], dtype=torch.float64))
            got = circuit_ops.log_prob(case.circuit, take_row(tempered, 0, len(windows)), windows).exp()
            leaves, *sums = (sharpened(weights[0], temperature) for weights in (params.leaves, *params.sums))
            expected = torch.from_numpy(enumerate_windows(case.kind, leaves, sums)).flatten()
            torch.testing.assert_close(got, expected, atol=1e-9, rtol=0)
            assert got.sum().item() == pytest.approx(1.0, abs=1e-9)


def close(a: CircuitParams, b: CircuitParams, tolerance: float) -> None:
    """Both parameters agree."""
    torch.testing.assert_close(a.leaves, b.leaves, atol=tolerance, rtol=0)
    for first, second in zip(a.sums, b.sums, strict=True):
        torch.testing.assert_close(first, second, atol=tolerance, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_temperature_one_is_the_identity(case: Case) -> None:
    close(circuit_ops.temper(case.params(), torch.ones(2)), case.params(), 1e-12)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_rows_have_their_own_temperature(case: Case) -> None:
    both = circuit_ops.temper(case.params(), torch.tensor([0.5, 2.0]))
    for row, temperature in enumerate((0.5, 2.0)):
        alone = circuit_ops.temper(take_row(case.params(), row), torch.tensor([temperature]))
        close(take_row(both, row), alone, 1e-12)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_cold_limit_is_the_mode_of_every_distribution(case: Case) -> None:
    cold = circuit_ops.temper(case.params(), torch.full((2,), 1e-4))
    for weights, original in zip(
        (cold.leaves, *cold.sums), (lambda p: (p.leaves, *p.sums))(case.params()), strict=True
    ):
        one_hot = torch.nn.functional.one_hot(original.argmax(-1), original.shape[-1]).double()
        torch.testing.assert_close(weights.exp(), one_hot, atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_hot_limit_is_uniform(case: Case) -> None:
    hot = circuit_ops.temper(case.params(), torch.full((2,), 1e9))
    for weights in (hot.leaves, *hot.sums):
        torch.testing.assert_close(weights.exp(), torch.full_like(weights, 1 / weights.shape[-1]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 0.5])
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_impossible_stays_impossible_without_nan(case: Case, temperature: float, dtype: torch.dtype) -> None:
    params = circuit_ops.condition(case.circuit, case.params(), torch.tensor([0, 1]))  # its first leaf holds -inf
    params = type(params)(params.leaves.to(dtype), tuple(w.to(dtype) for w in params.sums))
    tempered = circuit_ops.temper(params, torch.full((2,), temperature))
    assert not any(w.isnan().any() for w in (tempered.leaves, *tempered.sums))
    assert torch.equal(tempered.leaves[:, 0].isneginf(), params.leaves[:, 0].isneginf())
