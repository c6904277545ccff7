"""The closed form of acceptance along a text against a simulation of the steps it describes."""

import pytest
import torch

from mtpc.lab.evaluation.acceptance import counts_along, expected_counts


def simulate(accept: torch.Tensor, runs: int) -> tuple[float, list[float]]:
    """Acceptance length and marginal rates by drawing every acceptance."""
    texts, length, drafts = accept.shape
    steps, tokens, accepted = 0, 0, [0] * drafts
    for _ in range(runs):
        for text in range(texts):
            position = 0
            while position < length:
                draws = torch.rand(drafts) < accept[text, position]
                count = int(draws.long().cumprod(0).sum())
                steps += 1
                tokens += count + 1
                for index in range(count):
                    accepted[index] += 1
                position += count + 1
    return tokens / steps, [count / steps for count in accepted]


def test_closed_form_agrees_with_simulation():
    torch.manual_seed(0)
    accept = torch.rand(2, 30, 4, dtype=torch.float64) ** 0.5
    found = expected_counts(accept).rates
    length, marginal = simulate(accept, 400)
    assert found.length == pytest.approx(length, rel=0.01)
    assert found.marginal == pytest.approx(marginal, abs=0.02)
    assert found.length == pytest.approx(1 + sum(found.marginal))


def test_certain_and_impossible_drafts():
    assert expected_counts(torch.ones(1, 20, 3, dtype=torch.float64)).rates.length == pytest.approx(4)
    assert expected_counts(torch.zeros(1, 20, 3, dtype=torch.float64)).rates.length == pytest.approx(1)


def test_conditional_rates_are_those_of_accepted_predecessors():
    accept = torch.tensor([0.8, 0.5, 0.25], dtype=torch.float64).expand(1, 50, 3)
    found = expected_counts(accept).rates
    assert found.conditional == pytest.approx([0.8, 0.5, 0.25])
    assert found.marginal == pytest.approx([0.8, 0.4, 0.1])


def test_texts_of_other_lengths_add_up() -> None:
    torch.manual_seed(0)
    texts = [torch.rand(length, 3, dtype=torch.float64) for length in (7, 0, 12, 7)]
    found = counts_along(texts)
    parts = [expected_counts(text[None]) for text in texts]
    assert float(found.steps) == pytest.approx(sum(float(part.steps) for part in parts))
    assert found.accepted.tolist() == pytest.approx(torch.stack([part.accepted for part in parts]).sum(0).tolist())
    assert found.uniform_length == pytest.approx(1 + float(torch.cat(texts).cumprod(1).sum(1).mean()))
    assert found.accuracy == pytest.approx(torch.cat(texts).mean(0).tolist())


def test_no_step_is_no_acceptance() -> None:
    assert counts_along([torch.zeros(0, 2, dtype=torch.float64)]).rates == ([0.0, 0.0], [0.0, 0.0], 1.0)
