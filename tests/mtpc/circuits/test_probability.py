"""Log-probability, prefixes and conditionals of every circuit against enumeration, within 1e-9."""

from __future__ import annotations

import pytest
import torch

from mtpc.circuits.params import CircuitParams
from tests.oracles import circuit_ops
from tests.oracles.cases import KINDS, ONE_OF_EACH, Case, cases_of, sum_shapes, take_row

TOLERANCE = 1e-9


def some_windows(case: Case) -> torch.Tensor:
    """At most 40 windows, spread over all of them, int64 [N, n]."""
    windows = case.windows()
    return windows[:: -(-len(windows) // 40)]


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_of_the_sum_weights(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            assert tuple(map(tuple, case.circuit.sum_shapes())) == sum_shapes(case.kind, case.window, case.rank)


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_of_every_window(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            windows = case.windows()
            for row, table in enumerate(case.tables()):
                got = circuit_ops.log_prob(case.circuit, take_row(case.params(), row, len(windows)), windows)
                expected = torch.from_numpy(table.joint).log().flatten()
                torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)
                assert got.exp().sum().item() == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_prefix_log_probs(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            windows = some_windows(case)
            for row, table in enumerate(case.tables()):
                got = circuit_ops.prefix_log_probs(case.circuit, take_row(case.params(), row, len(windows)), windows)
                for x, prefixes in zip(windows.tolist(), got, strict=True):
                    expected = torch.from_numpy(table.prefix_log_probs(tuple(x)))
                    torch.testing.assert_close(prefixes, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_conditionals(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            windows = some_windows(case)
            for row, table in enumerate(case.tables()):
                got = circuit_ops.conditionals(case.circuit, take_row(case.params(), row, len(windows)), windows)
                assert got.shape == (len(windows), case.window, case.vocabulary)
                torch.testing.assert_close(
                    got.exp().sum(-1), torch.ones(got.shape[:2], dtype=got.dtype), atol=TOLERANCE, rtol=0
                )
                for x, conditionals in zip(windows.tolist(), got, strict=True):
                    expected = torch.from_numpy(table.conditionals(tuple(x))).log()
                    torch.testing.assert_close(conditionals, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_last_token_is_not_read_by_conditionals(case: Case) -> None:
    windows = some_windows(case)
    params = take_row(case.params(), 0, len(windows))
    changed = windows.clone()
    changed[:, -1] = (changed[:, -1] + 1) % case.vocabulary
    assert torch.equal(
        circuit_ops.conditionals(case.circuit, params, windows), circuit_ops.conditionals(case.circuit, params, changed)
    )


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_gradient_of_log_prob(case: Case) -> None:
    """Training descends along these gradients: they equal finite differences."""
    leaves, sums = (params := case.params()).leaves, params.sums
    windows = case.windows()[[5, 100]]

    def log_prob(leaves: torch.Tensor, *sums: torch.Tensor) -> torch.Tensor:
        return circuit_ops.log_prob(case.circuit, type(params)(leaves, sums), windows)

    assert torch.autograd.gradcheck(log_prob, tuple(t.clone().requires_grad_() for t in (leaves, *sums)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_the_first_tokens_has_their_distribution(kind: str) -> None:
    """A circuit that is no chain changes where its last tokens are summed out."""
    case = Case(kind, 4, 1 if kind == "ff" else 3, 3)
    params, short = case.params(1), Case(kind, 3, case.rank, 3)
    sums = case.circuit.leading_sums(tuple(each[0] for each in params.sums), 3)
    fits = tuple(each.shape for each in sums) == short.circuit.sum_shapes()
    assert case.circuit.is_chain == fits
    if fits:
        windows = short.windows()
        cut = CircuitParams(params.leaves[:, :3], tuple(each[None] for each in sums))
        got = circuit_ops.log_prob(short.circuit, take_row(cut, 0, len(windows)), windows)
        expected = torch.from_numpy(case.tables(1)[0].joint.sum(-1)).log().flatten()
        torch.testing.assert_close(got, expected, atol=TOLERANCE, rtol=0)
