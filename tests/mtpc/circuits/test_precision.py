"""float32 and bfloat16 parameters against float64, and parameters at the extremes."""

from __future__ import annotations

import pytest
import torch

from mtpc.circuits import CircuitParams
from tests.oracles import circuit_ops
from tests.oracles.cases import ONE_OF_EACH, Case, cast, sum_shapes, take_row

LARGER = [Case(kind, 16, 1 if kind == "ff" else 8, 50) for kind in ("ff", "cp", "hmm", "btree")]
# A log weight of size 8 is rounded by 2^-24 * 8 in float32, by 2^-8 * 8 in bfloat16; a window of 16 adds 31 of them.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.3}
# Conditionals are differences of log q(prefix), at worst about -600 here: half an ulp in float32 is 3e-5.
NORMALISED = 1e-4
# Parameters that were rounded to bfloat16 are not normalised themselves, and nothing but `temper` renormalises them.
ROUNDED = {torch.float32: NORMALISED, torch.bfloat16: 2e-2}


def windows_of(case: Case, rows: int) -> torch.Tensor:
    """Seeded windows, int64 [rows, n]."""
    return torch.randint(case.vocabulary, (rows, case.window), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [*ONE_OF_EACH, *LARGER], ids=str)
def test_agrees_with_float64(case: Case, dtype: torch.dtype) -> None:
    exact, x = case.params(rows=8), windows_of(case, 8)
    low, tolerance = cast(exact, dtype), TOLERANCE[dtype]
    for operation in (circuit_ops.log_prob, circuit_ops.prefix_log_probs, circuit_ops.conditionals):
        got, expected = (operation(case.circuit, params, x) for params in (low, exact))
        torch.testing.assert_close(
            got.double(), expected, atol=tolerance, rtol=0, msg=lambda m, o=operation: f"{o.__name__}: {m}"
        )
    conditioned, exact_conditioned = (
        circuit_ops.condition(case.circuit, low, x[:, 0]),
        circuit_ops.condition(case.circuit, exact, x[:, 0]),
    )
    torch.testing.assert_close(
        circuit_ops.conditionals(case.circuit, conditioned, x)[:, 1:].double(),
        circuit_ops.conditionals(case.circuit, exact_conditioned, x)[:, 1:],
        atol=tolerance,
        rtol=0,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", LARGER, ids=str)
def test_conditionals_stay_normalised(case: Case, dtype: torch.dtype) -> None:
    x = windows_of(case, 8)
    for temperature in (0.1, 1.0, 3.0):
        params = circuit_ops.temper(cast(case.params(rows=8), dtype), torch.full((8,), temperature))
        total = circuit_ops.conditionals(case.circuit, params, x).double().exp().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), atol=NORMALISED, rtol=0)


def extreme(case: Case, size: float, dtype: torch.dtype) -> CircuitParams:
    """Parameters from logits that are -size, 0 or size."""
    generator = torch.Generator().manual_seed(2)
    shapes = ((case.window, case.rank, case.vocabulary), *sum_shapes(case.kind, case.window, case.rank))
    leaves, *sums = (
        ((torch.randint(3, (4, *shape), generator=generator) - 1).float() * size).log_softmax(-1).to(dtype)
        for shape in shapes
    )
    return CircuitParams(leaves, tuple(sums))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [50.0, 1e4, 1e30])
@pytest.mark.parametrize("case", [*ONE_OF_EACH, *LARGER], ids=str)
def test_extreme_logits(case: Case, size: float, dtype: torch.dtype) -> None:
    """Nothing becomes NaN, conditionals stay distributions, samples and the greedy draft stay possible."""
    params, x = extreme(case, size, dtype), windows_of(case, 4)
    assert circuit_ops.log_prob(case.circuit, params, x).isfinite().all()
    for given in (params, circuit_ops.condition(case.circuit, params, x[:, 0])):
        greedy = circuit_ops.greedy(case.circuit, given)
        noise = torch.rand(4, case.window, generator=torch.Generator().manual_seed(3))
        for drafted in (greedy, circuit_ops.sample(case.circuit, given, noise)):
            assert (circuit_ops.log_prob(case.circuit, given, drafted) > -40 * case.window).all()
            conditionals = circuit_ops.conditionals(case.circuit, given, drafted)
            assert not conditionals.isnan().any()
            total = conditionals.double().exp().sum(-1)
            torch.testing.assert_close(total, torch.ones_like(total), atol=ROUNDED[dtype], rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_impossible_window_has_log_probability_minus_infinity(case: Case, dtype: torch.dtype) -> None:
    windows = case.windows()
    params = circuit_ops.condition(
        case.circuit, take_row(cast(case.params(), dtype), 0, len(windows)), torch.ones_like(windows[:, 0])
    )
    log_prob, prefixes = (
        circuit_ops.log_prob(case.circuit, params, windows),
        circuit_ops.prefix_log_probs(case.circuit, params, windows),
    )
    impossible = windows[:, 0] != 1
    assert log_prob[impossible].isneginf().all()
    assert prefixes[impossible].isneginf().all()
    assert log_prob[~impossible].isfinite().all()
    assert prefixes[~impossible].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_after_an_impossible_prefix_nothing_is_possible(case: Case, dtype: torch.dtype) -> None:
    """Of the first token itself everything is known; what follows an impossible one is -inf, and never NaN."""
    windows = case.windows()
    params = circuit_ops.condition(
        case.circuit, take_row(cast(case.params(), dtype), 0, len(windows)), torch.ones_like(windows[:, 0])
    )
    conditionals = circuit_ops.conditionals(case.circuit, params, windows)
    impossible = windows[:, 0] != 1
    assert conditionals[impossible][:, 1:].isneginf().all()
    assert not conditionals.isnan().any()
    assert conditionals[~impossible][:, 1:].isfinite().all()
