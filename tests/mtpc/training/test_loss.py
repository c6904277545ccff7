"""The losses against the circuit operations, and their gradients against each other."""

import pytest
import torch

from mtpc.drafter import Drafter, DrafterConfig
from mtpc.training.loss import discounts, distribution_losses, token_losses

VOCAB, HIDDEN, WINDOW = 6, 10, 5


def make(circuit: str) -> tuple[Drafter, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    rank = 1 if circuit == "ff" else 3
    drafter = Drafter(DrafterConfig(circuit, WINDOW, rank, HIDDEN, VOCAB, leaf_features=4, component_features=3))
    drafter.head.initialise(torch.randn(VOCAB, HIDDEN))
    return drafter, torch.randn(4, HIDDEN), torch.randint(VOCAB, (4, WINDOW))


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
def test_token_losses_are_the_conditionals_at_the_tokens(circuit: str):
    drafter, hidden, x = make(circuit)
    conditionals = drafter.circuit.conditionals(drafter.head(hidden), x)
    expected = -conditionals.gather(2, x[..., None])[..., 0]
    torch.testing.assert_close(token_losses(drafter, hidden, x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
def test_distribution_losses_are_divergences(circuit: str):
    drafter, hidden, x = make(circuit)
    conditionals = drafter.circuit.conditionals(drafter.head(hidden), x).detach()
    logits = torch.randn(4, WINDOW, VOCAB)
    log_p = logits.log_softmax(-1)
    expected = (log_p.exp() * (log_p - conditionals)).sum(-1)
    torch.testing.assert_close(distribution_losses(drafter, hidden, x, logits), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        distribution_losses(drafter, hidden, x, conditionals), torch.zeros(4, WINDOW), atol=1e-5, rtol=0
    )


def test_every_parameter_learns():
    for circuit in ("ff", "cp", "hmm", "btree"):
        drafter, hidden, x = make(circuit)
        token_losses(drafter, hidden, x).sum().backward()
        silent = [name for name, value in drafter.named_parameters() if value.grad is None or not value.grad.any()]
        # One leaf per position makes M_j B_i e a second name for W_i e, but it learns as well.
        assert silent == []


def test_discounts():
    weights = discounts(3, 0.5, torch.device("cpu"))
    torch.testing.assert_close(weights, torch.tensor([4.0, 2.0, 1.0]) / 7)
