"""Conditioning on the first token is exact (design contract 1)."""

from __future__ import annotations

import pytest
import torch

from tests.oracles import circuit_ops
from tests.oracles.cases import KINDS, ONE_OF_EACH, Case, cases_of, enumerate_rows, take_row

TOLERANCE = 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_conditioned_log_prob(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            windows = case.windows()
            for first in range(case.vocabulary):
                params = circuit_ops.condition(case.circuit, case.params(), torch.tensor([first, first]))
                for row, table in enumerate(case.tables()):
                    got = circuit_ops.log_prob(case.circuit, take_row(params, row, len(windows)), windows)
                    expected = torch.from_numpy(table.condition(first).joint).log().flatten()
                    torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)
                    assert got.exp().sum().item() == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_conditioned_parameters_are_a_circuit_of_the_same_kind(kind: str, subtests: pytest.Subtests) -> None:
    """Enumerated from its own parameters it is the conditional, and each distribution in it is normalised."""
    for case in cases_of(kind):
        with subtests.test(str(case)):
            first = torch.tensor([case.vocabulary - 1, 0])
            params = circuit_ops.condition(case.circuit, case.params(), first)
            original = case.params()
            assert params.leaves.shape == original.leaves.shape
            assert [w.shape for w in params.sums] == [w.shape for w in original.sums]
            for weights in (params.leaves, *params.sums):
                torch.testing.assert_close(weights.exp().sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype))
            for token, table, conditioned in zip(
                first.tolist(), case.tables(), enumerate_rows(case.kind, params), strict=True
            ):
                assert abs(conditioned.joint - table.condition(token).joint).max() < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_conditioned_conditionals_and_prefixes(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            windows = case.windows()[:: max(len(case.windows()) // 20, 1)]
            for row, table in enumerate(case.tables()):
                params = circuit_ops.condition(case.circuit, take_row(case.params(), row, len(windows)), windows[:, 0])
                conditionals = circuit_ops.conditionals(case.circuit, params, windows)
                prefixes = circuit_ops.prefix_log_probs(case.circuit, params, windows)
                for x, got, got_prefixes in zip(windows.tolist(), conditionals, prefixes, strict=True):
                    conditioned = table.condition(x[0])
                    expected = torch.from_numpy(conditioned.conditionals(tuple(x))).log()
                    torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)
                    expected = torch.from_numpy(conditioned.prefix_log_probs(tuple(x)))
                    torch.testing.assert_close(got_prefixes, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_rest_of_the_conditionals_is_unchanged(case: Case) -> None:
    """q(x_i | x_<i) for i >= 2 is the same with and without conditioning on the x_1 that is in x."""
    windows = case.windows()
    params = take_row(case.params(), 0, len(windows))
    plain = circuit_ops.conditionals(case.circuit, params, windows)
    conditioned = circuit_ops.conditionals(
        case.circuit, circuit_ops.condition(case.circuit, params, windows[:, 0]), windows
    )
    torch.testing.assert_close(conditioned[:, 1:], plain[:, 1:], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_conditioning_leaves_its_argument_alone(case: Case) -> None:
    params, before = case.params(), case.params()
    circuit_ops.condition(case.circuit, params, torch.tensor([0, 1]))
    assert torch.equal(params.leaves, before.leaves)
    assert all(torch.equal(a, b) for a, b in zip(params.sums, before.sums, strict=True))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_evidence_that_rules_components_out(case: Case) -> None:
    """Where only one component can emit the first token, conditioning selects it and stays free of NaN."""
    params = case.params()
    leaves = params.leaves.clone()
    if case.rank > 1:
        leaves[:, 0, 1:, 0] = -torch.inf
        leaves = leaves.log_softmax(-1)
    params = type(params)(leaves, params.sums)
    conditioned = circuit_ops.condition(case.circuit, params, torch.tensor([0, 0]))
    assert not any(w.isnan().any() for w in (conditioned.leaves, *conditioned.sums))
    for table, got in zip(enumerate_rows(case.kind, params), enumerate_rows(case.kind, conditioned), strict=True):
        assert abs(got.joint - table.condition(0).joint).max() < TOLERANCE
