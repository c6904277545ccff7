"""Samples against the exact joint by chi-square, with wrong circuits as controls that must be rejected."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from mtpc.circuits import CircuitParams
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from tests.oracles import circuit_ops
from tests.oracles.cases import ONE_OF_EACH, Case, cast, enumerate_rows, take_row
from tests.oracles.windows import WindowTable

SAMPLES = 40_000
CASES = [*ONE_OF_EACH, Case("cp", 3, 2, 4), Case("hmm", 4, 2, 3), Case("btree", 6, 2, 3), Case("btree", 1, 3, 4)]
ACCEPT_ABOVE = 1e-4  # of seeded samples; far above REJECT_BELOW, so the two cannot be confused


def sample(case: Case, params: CircuitParams, seed: int = 1) -> torch.Tensor:
    """SAMPLES seeded windows of the one row of `params`, int64 [N, n]."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(SAMPLES, case.window, generator=generator)  # float32, as the drafter's
    return circuit_ops.sample(case.circuit, take_row(params, 0, SAMPLES), noise)


def p_value(samples: torch.Tensor, table: WindowTable) -> float:
    """Of the samples under the table's joint."""
    counts = Counter(map(tuple, samples.tolist()))
    return chi_square(
        counts, {x: float(table.joint[x]) for x in product(range(table.vocabulary), repeat=table.window)}
    ).p


def product_of_marginals(table: WindowTable) -> WindowTable:
    """The control that a sampler of independent positions would satisfy."""
    marginals = [table.joint.sum(tuple(j for j in range(table.window) if j != i)) for i in range(table.window)]
    joint = marginals[0]
    for marginal in marginals[1:]:
        joint = np.multiply.outer(joint, marginal)
    return WindowTable(joint)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_samples_of_the_circuit(case: Case) -> None:
    samples = sample(case, case.params())
    assert samples.dtype == torch.int64
    assert samples.shape == (SAMPLES, case.window)
    assert p_value(samples, case.tables()[0]) > ACCEPT_ABOVE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_samples_given_the_first_token(case: Case) -> None:
    first = 1
    samples = sample(case, circuit_ops.condition(case.circuit, case.params(), torch.tensor([first, first])))
    assert (samples[:, 0] == first).all()
    assert p_value(samples, case.tables()[0].condition(first)) > ACCEPT_ABOVE


@pytest.mark.parametrize("temperature", [0.5, 1.5])
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_samples_at_a_temperature(case: Case, temperature: float) -> None:
    tempered = circuit_ops.temper(case.params(), torch.full((2,), temperature))
    samples = sample(case, tempered)
    assert p_value(samples, enumerate_rows(case.kind, tempered)[0]) > ACCEPT_ABOVE
    assert p_value(samples, case.tables()[0]) < REJECT_BELOW


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_samples_of_a_tempered_and_conditioned_circuit(case: Case) -> None:
    params = circuit_ops.condition(
        case.circuit, circuit_ops.temper(case.params(), torch.full((2,), 0.7)), torch.tensor([2, 2])
    )
    assert p_value(sample(case, params), enumerate_rows(case.kind, params)[0]) > ACCEPT_ABOVE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_control_another_circuit_is_rejected(case: Case) -> None:
    assert p_value(sample(case, case.params()), case.tables()[1]) < REJECT_BELOW


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_control_a_slightly_wrong_circuit_is_rejected(case: Case) -> None:
    """Five per cent of another circuit mixed in is found."""
    right, other = case.tables()
    assert p_value(sample(case, case.params()), WindowTable(0.95 * right.joint + 0.05 * other.joint)) < REJECT_BELOW


@pytest.mark.parametrize("case", ONE_OF_EACH[1:], ids=str)
def test_control_independent_positions_are_rejected(case: Case) -> None:
    """The samples carry the dependence between positions: the product of their exact marginals does not fit."""
    assert p_value(sample(case, case.params()), product_of_marginals(case.tables()[0])) < REJECT_BELOW


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_samples_in_low_precision(case: Case, dtype: torch.dtype) -> None:
    """float32 is exact to this test; bfloat16 draws from the circuit that its rounded parameters normalise to."""
    params = cast(case.params(), dtype)
    rounded = CircuitParams(
        params.leaves.double().log_softmax(-1), tuple(w.double().log_softmax(-1) for w in params.sums)
    )
    assert p_value(sample(case, params), enumerate_rows(case.kind, rounded)[0]) > ACCEPT_ABOVE


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_equal_noise_gives_equal_samples(case: Case) -> None:
    assert torch.equal(sample(case, case.params(), seed=3), sample(case, case.params(), seed=3))
    assert not torch.equal(sample(case, case.params(), seed=3), sample(case, case.params(), seed=4))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_every_uniform_of_the_noise_matters(case: Case) -> None:
    """No two tokens are drawn from the same uniform: each column alone changes some sample."""
    params = take_row(case.params(), 0, 400)
    noise = torch.rand(400, case.window, generator=torch.Generator().manual_seed(0))
    before = circuit_ops.sample(case.circuit, params, noise)
    for column in range(case.window):
        changed = noise.clone()
        changed[:, column] = 1.0 - changed[:, column]
        changed.clamp_(max=1.0 - 2.0**-24)
        assert not torch.equal(circuit_ops.sample(case.circuit, params, changed), before), (
            f"uniform {column} is not used"
        )
