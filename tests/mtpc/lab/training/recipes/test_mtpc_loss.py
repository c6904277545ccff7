"""The losses against the circuit operations, and their gradients against each other."""

import pytest
import torch

from mtpc.lab.training.recipes.mtpc_loss import discounts, distribution_losses, token_losses
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from tests.oracles import circuit_ops

VOCAB, HIDDEN, WINDOW = 6, 10, 5


def make(circuit: str, token_input: bool = False) -> tuple[CircuitPart, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    sizes = {"window": WINDOW, "rank": 1 if circuit == "ff" else 3, "hidden_size": HIDDEN, "vocab_size": VOCAB}
    trunk = {"trunk_size": 8, "token_input": True} if token_input else {}
    part = CircuitPart(CircuitConfig(circuit=circuit, leaf_features=4, component_features=3, **sizes, **trunk))
    part.head.initialize(torch.randn(VOCAB, HIDDEN))
    return part, torch.randn(4, HIDDEN), torch.randint(VOCAB, (4, WINDOW))


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
def test_token_losses_are_the_conditionals_at_the_tokens(circuit: str, token_input: bool):
    part, hidden, x = make(circuit, token_input)
    modelled = x[:, int(token_input) :]
    conditionals = circuit_ops.conditionals(part.circuit, part.head(hidden, x[:, 0]), modelled)
    expected = -conditionals.gather(2, modelled[..., None])[..., 0]
    torch.testing.assert_close(token_losses(part, hidden, x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
def test_distribution_losses_are_divergences(circuit: str, token_input: bool):
    part, hidden, x = make(circuit, token_input)
    first = int(token_input)
    conditionals = circuit_ops.conditionals(part.circuit, part.head(hidden, x[:, 0]), x[:, first:]).detach()
    logits = torch.randn(4, WINDOW, VOCAB)
    log_p = logits.log_softmax(-1)[:, first:]
    expected = (log_p.exp() * (log_p - conditionals)).sum(-1)
    torch.testing.assert_close(distribution_losses(part, hidden, x, logits), expected, atol=1e-5, rtol=1e-4)
    logits[:, first:] = conditionals
    torch.testing.assert_close(
        distribution_losses(part, hidden, x, logits), torch.zeros(4, WINDOW - first), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("token_input", [False, True])
def test_every_parameter_learns(token_input: bool):
    for circuit in ("ff", "cp", "hmm", "btree"):
        part, hidden, x = make(circuit, token_input)
        if part.head.trunk is not None:  # starts as the identity, its inner weights learn from the second step on
            torch.nn.init.normal_(part.head.trunk.down.weight)
        token_losses(part, hidden, x).sum().backward()
        silent = [name for name, value in part.named_parameters() if value.grad is None or not value.grad.any()]
        # One leaf per position makes M_j B_i e a second name for W_i e, but it learns as well.
        assert silent == []


def test_discounts():
    weights = discounts(3, 0.5, torch.device("cpu"))
    torch.testing.assert_close(weights, torch.tensor([4.0, 2.0, 1.0]) / 7)
