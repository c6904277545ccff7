"""The recursive loss (equations 1 and 2) against its definition."""

from __future__ import annotations

import pytest
import torch

from mtpc.lab.training.recipes.fastmtp_loss import step_losses, step_weights
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_models import SIZE, VOCAB, draft_layers_oracle, make_layer, make_target

STEPS, LENGTH = 3, 9


def test_the_published_weights() -> None:
    assert step_weights(3, 0.6) == pytest.approx([0.51, 0.31, 0.18], abs=5e-3)
    assert step_weights(1, 0.6) == [1.0]


@pytest.mark.parametrize("rows", [2, 100])
@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_every_step_of_every_chosen_start_counts_once(loss: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.lab.training.head_loss.ROWS", rows)
    target = make_target("llama")
    layer, head = make_layer(target), SharedHead.of(target)
    oracle = draft_layers_oracle(layer, head)
    hidden, tokens = torch.randn(2, LENGTH, SIZE), torch.randint(VOCAB, (2, LENGTH))
    chosen = torch.rand(2, LENGTH - STEPS - 1) < 0.5
    chosen[0, 0] = True
    found = step_losses(layer, head, hidden, tokens, chosen, STEPS, loss)
    expected = torch.zeros(STEPS, dtype=torch.float64)
    for row, start in chosen.nonzero().tolist():
        text = tokens[row].tolist()
        follow = text[start + 2 :]
        _, logits = oracle.draft(hidden[row], text[: start + 2], STEPS, lambda step, _, to=follow: to[step])
        log_q = logits.log_softmax(-1)
        for step in range(STEPS):
            if loss == "ce":
                expected[step] -= log_q[step, text[start + step + 2]]
            else:
                log_p = oracle.logits(hidden[row, start + step + 1].double()).log_softmax(-1)
                expected[step] += (log_p.exp() * (log_p - log_q[step])).sum()
    torch.testing.assert_close(found.double(), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_the_slope_is_that_of_the_loss(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.lab.training.head_loss.ROWS", 2)
    target = make_target("llama").double()
    layer, head = make_layer(target).double().requires_grad_(True), SharedHead.of(target)
    hidden, tokens = torch.randn(2, LENGTH, SIZE).double(), torch.randint(VOCAB, (2, LENGTH))
    chosen = torch.rand(2, LENGTH - STEPS - 1) < 0.7
    weights, step = torch.tensor([0.5, 0.3, 0.2]), 2e-3

    def value() -> torch.Tensor:
        return (step_losses(layer, head, hidden, tokens, chosen, STEPS, loss) * weights).sum()

    value().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        direction = parameter.grad / parameter.grad.norm()
        with torch.no_grad():
            parameter += step * direction
            above = value()
            parameter -= 2 * step * direction
            below = value()
            parameter += step * direction
        assert float(above - below) / (2 * step) == pytest.approx(float(parameter.grad.norm()), rel=0.02, abs=1e-3)


@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_every_parameter_learns_and_the_target_does_not(loss: str) -> None:
    target = make_target("qwen2")
    layer, head = make_layer(target).requires_grad_(True), SharedHead.of(target)
    hidden, tokens = torch.randn(1, LENGTH, SIZE), torch.randint(VOCAB, (1, LENGTH))
    chosen = torch.ones(1, LENGTH - STEPS - 1, dtype=torch.bool)
    step_losses(layer, head, hidden, tokens, chosen, STEPS, loss).sum().backward()
    silent = [name for name, p in layer.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []
    assert all(p.grad is None for p in target.parameters())
