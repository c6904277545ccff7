"""One token at a time, for several prefixes side by side, a circuit believes what it believes all at once."""

from __future__ import annotations

import pytest
import torch

from mtpc.circuits.params import token_evidence
from tests.oracles.cases import Case

ROWS, PREFIXES = 2, 3
CASES = [
    Case(kind, window, 1 if kind == "ff" else 3, 5) for kind in ("ff", "cp", "hmm", "btree") for window in range(1, 18)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_beliefs_step_by_step(case: Case) -> None:
    """The prefixes of a row share their first token and part after it."""
    circuit, params = case.circuit, case.params(ROWS)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(case.vocabulary, (ROWS, PREFIXES, case.window), generator=generator)
    x[:, :, 0] = x[:, :1, 0]
    state = circuit.start(params)
    beliefs_at = [state[-1].expand(-1, PREFIXES, -1)]
    for position in range(case.window - 1):
        leaves = params.leaves[:, position, None]  # [B, 1, R, V]
        if position == 0:
            evidence = token_evidence(leaves, x[:, :1, 0])
        else:
            evidence = token_evidence(leaves.expand(-1, PREFIXES, -1, -1), x[:, :, position])
        state = circuit.advance(params.sums, position, state, evidence)
        if position == 0:
            state = tuple(tensor.expand(-1, PREFIXES, -1) for tensor in state)
        beliefs_at.append(state[-1])
    for prefix in range(PREFIXES):
        expected = circuit.beliefs(params.sums, token_evidence(params.leaves, x[:, prefix])).softmax(-1)
        got = torch.stack([beliefs[:, prefix] for beliefs in beliefs_at], 1).softmax(-1)
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
