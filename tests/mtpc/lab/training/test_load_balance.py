"""The load-balancing loss and the usage of components against sums over all latent variables and tokens."""

from __future__ import annotations

import math

import pytest
import torch

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.lab.training.load_balance import ComponentUsage, balance_loss

STARTS, WINDOW, RANK, VOCAB = 6, 3, 2, 4


def params_of(kind: str) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Unnormalized leaves and sums."""
    torch.manual_seed(0)
    sums = build_circuit(kind, WINDOW, RANK).sum_shapes()
    return torch.randn(STARTS, WINDOW, RANK, VOCAB), tuple(2 * torch.randn(STARTS, *shape) for shape in sums)


@pytest.mark.parametrize("kind", ["cp", "hmm", "btree"])
def test_usage_before_and_after_the_text_is_that_of_bayes(kind: str) -> None:
    """q(z_i = j) and q(z_i = j | x_1..x_i), by making component j impossible at position i."""
    circuit, (leaves, sums) = build_circuit(kind, WINDOW, RANK), params_of(kind)
    params = CircuitParams(leaves.log_softmax(-1), tuple(weights.log_softmax(-1) for weights in sums))
    text = torch.randint(VOCAB, (STARTS, WINDOW))
    evidence = params.leaves.gather(3, text[:, :, None, None].expand(-1, -1, RANK, 1))[..., 0]

    def shares(evidence: torch.Tensor) -> torch.Tensor:
        usage = torch.zeros(WINDOW, RANK)
        for position in range(WINDOW):
            seen = evidence.clone()
            seen[:, position + 1 :] = 0.0
            whole = torch.logsumexp(circuit.beliefs(params.sums, seen) + seen, -1)[:, -1].exp()
            for component in range(RANK):
                only = seen.clone()
                only[:, position, [j for j in range(RANK) if j != component]] = -1e4
                with_it = torch.logsumexp(circuit.beliefs(params.sums, only) + only, -1)[:, -1].exp()
                usage[position, component] = (with_it / whole).sum()
        return usage

    found = ComponentUsage.of(circuit, params.sums, evidence)
    torch.testing.assert_close(found.shares, shares(evidence), atol=1e-4, rtol=1e-4)
    expected = ((shares(torch.zeros_like(evidence)) / STARTS - 1 / RANK) ** 2).sum(-1).mean()
    torch.testing.assert_close(balance_loss(circuit, sums), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["cp", "hmm", "btree"])
def test_descending_the_loss_brings_a_dead_component_back(kind: str) -> None:
    circuit, (_, sums) = build_circuit(kind, WINDOW, RANK), params_of(kind)
    learned = [weights.clone().requires_grad_() for weights in sums]
    with torch.no_grad():
        for weights in learned:
            weights[..., 0] += 6.0
    evidence = torch.zeros(STARTS, WINDOW, RANK)

    def dead() -> float:
        normalized = tuple(weights.detach().log_softmax(-1) for weights in learned)
        return max(ComponentUsage.of(circuit, normalized, evidence).to_json()["dead_share"])

    assert dead() == 0.5
    optimizer = torch.optim.Adam(learned, 0.3)
    for _ in range(60):
        optimizer.zero_grad()
        balance_loss(circuit, tuple(learned)).backward()
        optimizer.step()
    assert dead() == 0.0
    assert balance_loss(circuit, tuple(learned)) < 1e-3


def test_equal_usage_has_the_largest_entropy() -> None:
    usage = ComponentUsage(torch.tensor([[2.0, 2.0], [4.0, 0.0]]), 4).plus(
        ComponentUsage(torch.tensor([[1.0, 1.0], [2.0, 0.0]]), 2)
    )
    expected = {"dead_share": [0.0, 0.5], "usage_entropy": [round(math.log(2), 4), 0.0], "starts": 6}
    assert usage.to_json() == expected | {"equal_usage_entropy": round(math.log(2), 4)}
