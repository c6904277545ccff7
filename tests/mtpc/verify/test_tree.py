"""Verification of trees: exact distributions by summing over all choices of the target, and cases by hand."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.verify import PADDING, node_depths, verify_greedy, verify_tree
from mtpc.verify.tree import follow_choices
from tests.mtpc.verify.test_exactness import distance
from tests.oracles.processes import Process, random_process
from tests.oracles.trees import Prefix, random_tree, to_tensors

LARGEST = 1.0 - 2.0**-24
SAMPLES = 20_000
# (V, depth, N): chains, bushes and what lies between
SIZES = [(2, 1, 1), (2, 1, 2), (2, 2, 6), (2, 4, 4), (2, 4, 9), (3, 1, 3), (3, 2, 5), (3, 3, 6)]


def judged_by(target: Process, prefixes: list[Prefix]) -> Tensor:
    """The target's distributions at the root and at each node, float64 [N + 1, V]."""
    return torch.stack([target.conditionals[x] for x in [(), *prefixes]])


def emitted_joint(target: Process, prefixes: list[Prefix], probs: Tensor) -> dict[Prefix, float]:
    """Exact distribution of the first tokens: the walk for every choice at every node, completed by the target."""
    rows = len(prefixes) + 1
    chosen = torch.tensor(list(product(range(target.vocabulary), repeat=rows)))  # [V^(N + 1), N + 1]
    weight = probs[torch.arange(rows), chosen].prod(1)
    tokens, parents = to_tensors(prefixes)
    verdict = follow_choices(tokens.expand(len(chosen), -1), parents.expand(len(chosen), -1), chosen)
    emitted: Counter[Prefix] = Counter()
    for x, accepted, share in zip(verdict.tokens.tolist(), verdict.accepted.tolist(), weight.tolist(), strict=True):
        emitted[tuple(x[: accepted + 1])] += share
    joint = dict.fromkeys(target.joint(), 0.0)
    for start, share in emitted.items():
        for x in joint:
            if x[: len(start)] == start:
                joint[x] += share * target.probability(x, given=len(start))
    return joint


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("vocabulary", "depth", "size"), SIZES)
def test_emitted_distribution_is_the_target(vocabulary: int, depth: int, size: int, seed: int, zeros: bool) -> None:
    target = random_process(vocabulary, depth + 1, seed, zeros)
    tree = random_tree(vocabulary, depth, size, seed)
    assert distance(emitted_joint(target, tree, judged_by(target, tree)), target.joint()) < 1e-12


def test_control_the_distributions_of_other_nodes_are_not_lossless() -> None:
    """Judged by its parent's distribution, as a walk that is a row off would do."""
    target, tree = random_process(3, 4, 0), random_tree(3, 3, 6, 0)
    shifted = judged_by(target, [x[:-1] for x in tree])
    assert distance(emitted_joint(target, tree, shifted), target.joint()) > 0.02


def independent_coins(target: Process, prefixes: list[Prefix]) -> dict[Prefix, float]:
    """A wrong rule, exactly: each child has a coin of its own, and after the last one the target draws afresh."""
    joint = dict.fromkeys(target.joint(), 0.0)
    walks: list[tuple[Prefix, float]] = [((), 1.0)]
    while walks:
        start, share = walks.pop()
        p = target.conditionals[start]
        for child in (x for x in prefixes if x[:-1] == start):
            walks.append((child, share * p[child[-1]].item()))
            share *= 1.0 - p[child[-1]].item()
        for x in joint:
            if x[: len(start)] == start:
                joint[x] += share * target.probability(x, given=len(start))
    return joint


def test_control_a_coin_for_each_sibling_is_not_lossless() -> None:
    target, tree = random_process(3, 4, 0), random_tree(3, 3, 6, 0)
    joint = independent_coins(target, tree)
    assert sum(joint.values()) == pytest.approx(1.0)
    assert distance(joint, target.joint()) > 0.02


def sampled(target: Process, tree: list[Prefix], probs: Tensor) -> Counter[Prefix]:
    """Count the emitted tokens at random uniforms, completed by samples of the target."""
    generator = torch.Generator().manual_seed(3)
    tokens, parents = (links.expand(SAMPLES, -1) for links in to_tensors(tree))
    uniforms = torch.rand(SAMPLES, len(tree) + 1, generator=generator)
    verdict = verify_tree(tokens, parents, probs.float().expand(SAMPLES, -1, -1), uniforms)
    counts: Counter[Prefix] = Counter()
    for row, accepted in zip(verdict.tokens.tolist(), verdict.accepted.tolist(), strict=True):
        x = tuple(row[: accepted + 1])
        while len(x) < target.length:
            x = (*x, int(torch.multinomial(target.conditionals[x], 1, generator=generator)))
        counts[x] += 1
    return counts


@pytest.mark.parametrize("zeros", [False, True])
def test_samples_follow_the_target(zeros: bool) -> None:
    target, tree = random_process(3, 4, 1, zeros), random_tree(3, 3, 12, 1)
    assert chi_square(sampled(target, tree, judged_by(target, tree)), target.joint()).p > 1e-4


def test_control_samples_with_the_distributions_of_other_nodes_are_rejected() -> None:
    target, tree = random_process(3, 4, 1), random_tree(3, 3, 12, 1)
    shifted = judged_by(target, [x[:-1] for x in tree])
    assert chi_square(sampled(target, tree, shifted), target.joint()).p < REJECT_BELOW


TREE: list[Prefix] = [(1,), (2,), (1, 0), (2, 0), (1, 0, 3), (1, 2), (2, 0, 0)]


def walk(choices: dict[Prefix, int]) -> tuple[list[int], list[int]]:
    """Return (tokens, path) of one row of `TREE` for a target with these choices, and 3 after other prefixes."""
    best = torch.tensor([[choices.get(x, 3) for x in [(), *TREE]]])
    verdict = follow_choices(*to_tensors(TREE), best)
    accepted = int(verdict.accepted)
    assert verdict.tokens[0, accepted + 1 :].tolist() == [PADDING] * (len(TREE) - accepted)
    assert verdict.path[0, accepted:].tolist() == [PADDING] * (len(TREE) - accepted)
    return verdict.tokens[0, : accepted + 1].tolist(), verdict.path[0, :accepted].tolist()


def test_greedy_walks_by_hand() -> None:
    assert walk({}) == ([3], [])
    assert walk({(): 2}) == ([2, 3], [1])
    assert walk({(): 1, (1,): 2}) == ([1, 2, 3], [0, 5])
    assert walk({(): 1, (1,): 0, (1, 0, 3): 2}) == ([1, 0, 3, 2], [0, 2, 4])
    assert walk({(): 2, (2,): 0, (2, 0): 0, (2, 0, 0): 0}) == ([2, 0, 0, 0], [1, 3, 6])


def test_a_matching_node_below_a_mismatch_is_not_accepted() -> None:
    """Its own parent's choice is met, but the walk never gets there."""
    assert walk({(): 1, (2,): 0, (2, 0): 0}) == ([1, 3], [0])


def test_depths() -> None:
    assert node_depths(to_tensors(TREE)[1]).tolist() == [[len(x) for x in TREE]]
    assert node_depths(torch.arange(-1, 32)[None]).tolist() == [list(range(1, 34))]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_a_chain_is_the_greedy_match(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    drafts = torch.randint(2, (300, size), generator=generator)
    target = torch.rand(300, size + 1, 2, generator=generator)
    parents = torch.arange(-1, size - 1).expand(300, -1)
    expected, verdict = verify_greedy(drafts, target), follow_choices(drafts, parents, target.argmax(-1))
    assert torch.equal(verdict.accepted, expected.accepted)
    assert torch.equal(verdict.tokens, expected.tokens)


def test_one_hot_targets_reduce_to_the_greedy_walk() -> None:
    """Temperature 0 in a mixed batch, for uniforms anywhere."""
    generator = torch.Generator().manual_seed(0)
    tokens, parents = (links.expand(200, -1) for links in to_tensors(TREE))
    best = torch.randint(4, (200, len(TREE) + 1), generator=generator)
    target = torch.nn.functional.one_hot(best, 4).float()
    expected = follow_choices(tokens, parents, target.argmax(-1))
    assert len(expected.accepted.unique()) == 4
    for uniforms in (torch.zeros_like(best), torch.full_like(best, 1.0) * LARGEST, torch.rand(best.shape)):
        verdict = verify_tree(tokens, parents, target, uniforms)
        assert all(torch.equal(got, wanted) for got, wanted in zip(verdict, expected, strict=True))


@pytest.mark.parametrize("uniform", [0.0, 0.5, LARGEST])
def test_a_draft_of_target_probability_zero_is_never_accepted(uniform: float) -> None:
    target = torch.tensor([[[0.0, 0.4, 0.0, 0.6], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]])
    verdict = verify_tree(torch.tensor([[0, 2]]), torch.tensor([[-1, -1]]), target, torch.full((1, 3), uniform))
    assert verdict.accepted.item() == 0
    assert verdict.tokens[0, 0].item() in (1, 3)
