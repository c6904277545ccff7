"""The conditionals of prompt lookup mixed with a drafter, against the sum over the number of copied tokens."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from mtpc.prompt_lookup.mixture import Copied, Copying, mixture_weight

VOCAB, DRAFTS = 3, 4
COPIED = torch.tensor([[1, 1, 2, 0]])


def own_conditionals(seed: int) -> dict[tuple[int, ...], Tensor]:
    """A drafter's q_d(x_i | x_<i), float64 [V], by prefix; some tokens are impossible."""
    generator = torch.Generator().manual_seed(seed)
    table = {}
    for length in range(DRAFTS):
        for prefix in itertools.product(range(VOCAB), repeat=length):
            weights = torch.rand(VOCAB, generator=generator, dtype=torch.float64)
            weights[torch.rand(VOCAB, generator=generator) < 0.2] = 0.0
            table[prefix] = (weights + 1e-12 * (weights.sum() == 0)) / (weights + 1e-12 * (weights.sum() == 0)).sum()
    return table


def joint(x: tuple[int, ...], own: dict[tuple[int, ...], Tensor], chances: list[float]) -> float:
    """sum_l P(L = l) prod_{i <= l} 1[x_i = c_i] prod_{i > l} q_d(x_i | x_<i)."""
    total = 0.0
    for copied in range(DRAFTS + 1):
        chance = 1.0
        for i in range(copied):
            chance *= chances[i] * (x[i] == int(COPIED[0, i]))
        if copied < DRAFTS:
            chance *= 1 - chances[copied]
        for i in range(copied, DRAFTS):
            chance *= own[x[:i]][x[i]].item()
        total += chance
    return total


@pytest.mark.parametrize("chances", [[0.3, 0.9, 0.5, 0.99], [0.0, 0.5, 0.5, 0.5], [0.7, 0.0, 0.9, 0.9], [0.0] * 4])
@pytest.mark.parametrize("seed", range(3))
def test_conditionals_are_those_of_the_joint(seed: int, chances: list[float]) -> None:
    own, total = own_conditionals(seed), 0.0
    for x in itertools.product(range(VOCAB), repeat=DRAFTS):
        copying, stated = Copying.begin(Copied(COPIED, torch.tensor([chances], dtype=torch.float64))), 1.0
        for i, token in enumerate(x):
            drafter = own[x[:i]][None]
            mixed = copying.mixed(drafter)
            assert mixed.sum().item() == pytest.approx(1.0)
            stated *= mixed[0, token].item()
            copying = copying.drafted(torch.tensor([token]), copying.drafter_probability(drafter))
        assert stated == pytest.approx(joint(x, own, chances), abs=1e-12)
        total += stated
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("done", range(1, DRAFTS))
def test_what_remains_goes_on_as_the_whole(done: int) -> None:
    generator = torch.Generator().manual_seed(done)
    whole = Copying.begin(Copied(COPIED, torch.tensor([[0.6, 0.9, 0.8, 0.7]])))
    for place in range(DRAFTS):
        if place == done:
            rest = Copying.begin(whole.remaining())
            assert torch.equal(rest.copied.first(1).tokens, COPIED[:, done : done + 1])
        own = torch.rand(1, VOCAB, generator=generator).softmax(-1)
        token = COPIED[:, place]
        if place >= done:
            assert torch.equal(rest.mixed(own), whole.mixed(own))
            rest = rest.drafted(token, rest.drafter_probability(own))
        whole = whole.drafted(token, whole.drafter_probability(own))


def test_without_a_chance_the_drafter_is_left_as_it_is() -> None:
    own = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    copying = Copying.begin(Copied(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)))
    assert torch.equal(copying.mixed(own), own)
    assert torch.equal(copying.drafted(torch.tensor([0, 0]), copying.drafter_probability(own)).mixed(own), own)


def test_rows_are_apart() -> None:
    own = torch.tensor([[0.2, 0.3, 0.5]]).expand(2, -1)
    chances = torch.tensor([[0.9, 0.9], [0.0, 0.9]])
    copying = Copying.begin(Copied(torch.ones(2, 2, dtype=torch.int64), chances))
    assert copying.mixed(own)[0, 1] > 0.9
    assert torch.equal(copying.mixed(own)[1], own[1])
    assert copying.drafted(torch.tensor([1, 1]), copying.drafter_probability(own)).weight[1] == 0


def test_the_most_probable_token_needs_no_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.rand(200, 5, generator=generator).softmax(1)
    tokens = torch.randint(5, (200, 1), generator=generator)
    copying = Copying.begin(Copied(tokens, torch.rand(200, 1, generator=generator) / 2))
    likely, largest = own.max(1)
    token = copying.most_probable(largest, likely, copying.drafter_probability(own))
    assert torch.equal(token, copying.mixed(own).argmax(1))
    assert 20 < (token == tokens[:, 0]).sum() < 180


def test_a_doubted_chance_has_a_logit_that_is_one_less() -> None:
    chances = torch.tensor([0.1, 0.5, 0.9])
    assert torch.allclose(mixture_weight(chances).logit(), chances.logit() - 1.0, atol=1e-5)
    assert mixture_weight(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert mixture_weight(0.5) == pytest.approx(float(mixture_weight(torch.tensor(0.5))))
