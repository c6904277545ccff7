"""Expected acceptance in closed form against enumeration, and rates from counts by hand."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from mtpc.verify import expected_rates, overlap, rates_from_counts
from tests.mtpc.verify.rules import rejection_rule
from tests.oracles.processes import random_process, sample_paths


def test_overlap_is_one_minus_total_variation() -> None:
    draft, target = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.3, 0.6])
    assert overlap(draft, target).item() == pytest.approx(1 - (0.4 + 0.0 + 0.4) / 2)
    assert overlap(target, target).item() == pytest.approx(1.0)


@pytest.mark.parametrize("zeros", [False, True])
def test_expected_rates_equal_enumeration(zeros: bool) -> None:
    """Averaged over all drafts with their probability, by giving each path as many rows as its share."""
    target, draft = random_process(3, 4, 0, zeros), random_process(3, 3, 1, zeros)
    paths = torch.tensor([x for x in product(range(3), repeat=3) if draft.probability(x) > 0])
    q, p = draft.along(paths, 3), target.along(paths, 4)
    weight = torch.tensor([draft.probability(tuple(x)) for x in paths.tolist()], dtype=torch.float64)
    accepted, _ = rejection_rule(paths, q, p)
    exact = [(weight * accepted[:, k:].sum(1)).sum().item() for k in (1, 2, 3)]
    one_by_one = torch.tensor(
        [expected_rates(paths[b : b + 1], q[b : b + 1], p[b : b + 1]).marginal for b in range(len(paths))]
    )
    assert (weight[:, None] * one_by_one).sum(0).tolist() == pytest.approx(exact, abs=1e-6)


def test_expected_rates_of_sampled_drafts() -> None:
    target, draft = random_process(3, 4, 0), random_process(3, 3, 1)
    paths = sample_paths(draft, 20_000, 3, seed=0)
    distinct, index = paths.unique(dim=0, return_inverse=True)
    q, p = draft.along(distinct, 3)[index], target.along(distinct, 4)[index]
    rates = expected_rates(paths, q, p)
    accepted, _ = rejection_rule(paths, q, p)
    assert rates.length == pytest.approx(1.0 + (accepted @ torch.arange(4.0).double()).mean().item(), abs=0.01)
    assert rates.conditional[0] == pytest.approx(overlap(q[0, 0], p[0, 0]).item())


def test_rates_from_counts() -> None:
    rates = rates_from_counts(100, [80, 60, 15, 0, 0])
    assert rates.marginal == [0.8, 0.6, 0.15, 0.0, 0.0]
    assert rates.conditional == pytest.approx([0.8, 0.75, 0.25, 0.0, 0.0])
    assert rates.length == pytest.approx(2.55)


def test_no_steps_are_no_acceptance() -> None:
    assert rates_from_counts(0, [0, 0]) == ([0.0, 0.0], [0.0, 0.0], 1.0)
