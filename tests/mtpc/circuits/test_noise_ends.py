"""Noise at the very ends of [0, 1) selects possible tokens and possible components only."""

from __future__ import annotations

import pytest
import torch

from mtpc.circuits import CircuitParams
from tests.oracles import circuit_ops
from tests.oracles.cases import KINDS, Case

LARGEST = 1.0 - 2.0**-24  # the largest float32 below 1
ENDS = [0.0, 2.0**-24, 0.5, LARGEST]
VOCABULARY, RANK = 4, 4


def with_impossible_ends(case: Case) -> CircuitParams:
    """The first and the last entry of every distribution are impossible; so are tokens of the components between."""
    params = case.params()

    def ends(weights: torch.Tensor) -> torch.Tensor:
        weights = weights.clone()
        if weights.shape[-1] > 2:
            weights[..., 0] = weights[..., -1] = -torch.inf
        return weights.log_softmax(-1)

    return CircuitParams(ends(params.leaves), tuple(ends(w) for w in params.sums))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_no_impossible_token(kind: str, window: int, end: float, dtype: torch.dtype) -> None:
    case = Case(kind, window, 1 if kind == "ff" else RANK, VOCABULARY)
    params = with_impossible_ends(case)
    params = CircuitParams(params.leaves.to(dtype), tuple(w.to(dtype) for w in params.sums))
    sampled = circuit_ops.sample(case.circuit, params, torch.full((2, case.window), end))
    assert ((sampled > 0) & (sampled < VOCABULARY - 1)).all()
    assert circuit_ops.log_prob(case.circuit, params, sampled).isfinite().all()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_large_vocabulary_of_small_masses(kind: str, end: float) -> None:
    """Rounding of a long cumulative sum does not run over the end into impossible tokens."""
    case = Case(kind, 3, 1 if kind == "ff" else 2, 5000)
    params = case.params()
    leaves = params.leaves.clone()
    leaves[..., 4000:] = -torch.inf
    leaves = leaves.float().log_softmax(-1)
    sampled = circuit_ops.sample(
        case.circuit, CircuitParams(leaves, tuple(w.float() for w in params.sums)), torch.full((2, case.window), end)
    )
    assert ((sampled >= 0) & (sampled < 4000)).all()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_first_token_given_stays(kind: str, end: float) -> None:
    """After conditioning the first leaf has one possible token, and every noise selects it."""
    case = Case(kind, 4, 1 if kind == "ff" else 3, VOCABULARY)
    for first in range(VOCABULARY):
        params = circuit_ops.condition(case.circuit, case.params(), torch.tensor([first, first]))
        sampled = circuit_ops.sample(case.circuit, params, torch.full((2, case.window), end))
        assert (sampled[:, 0] == first).all()
