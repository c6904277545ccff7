"""The greedy draft is the left to right argmax of the exact conditionals."""

from __future__ import annotations

import pytest
import torch

from tests.oracles import circuit_ops
from tests.oracles.cases import KINDS, ONE_OF_EACH, Case, cases_of, cast


@pytest.mark.parametrize("kind", KINDS)
def test_greedy(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            got = circuit_ops.greedy(case.circuit, case.params())
            assert got.dtype == torch.int64
            assert got.tolist() == [list(table.greedy()) for table in case.tables()]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_after_a_first_token(kind: str, subtests: pytest.Subtests) -> None:
    for case in cases_of(kind):
        with subtests.test(str(case)):
            for first in range(case.vocabulary):
                got = circuit_ops.greedy(case.circuit, case.params(), torch.tensor([first, first]))
                assert got.tolist() == [list(table.greedy(first)) for table in case.tables()]


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_greedy_of_the_conditioned_circuit_is_the_same(case: Case) -> None:
    first = torch.tensor([0, case.vocabulary - 1])
    conditioned = circuit_ops.condition(case.circuit, case.params(), first)
    assert torch.equal(
        circuit_ops.greedy(case.circuit, conditioned), circuit_ops.greedy(case.circuit, case.params(), first)
    )


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("first", [None, torch.tensor([1, 2])])
def test_greedy_in_float32(case: Case, first: torch.Tensor | None) -> None:
    """No near tie in these parameters: float32 drafts the same tokens as float64."""
    assert torch.equal(
        circuit_ops.greedy(case.circuit, cast(case.params(), torch.float32), first),
        circuit_ops.greedy(case.circuit, case.params(), first),
    )
