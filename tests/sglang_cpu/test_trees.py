"""Trees of drafts against walks along their parents."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from sglang_cpu.trees import (
    FULL_MASK,
    QUERIES_ONLY,
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)
from tests.sglang_cpu.random_trees import TOPK, Tree, above, links, make_tree

LENGTHS = torch.tensor([5, 1, 12])


def some_trees(nodes: int, seed: int, lost: float = 0.0) -> list[Tree]:
    """One tree for each of the lengths."""
    generator = random.Random(seed)
    return [make_tree(nodes, generator, lost) for _ in LENGTHS]


def build(trees: list[Tree], mode: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Mask, positions and the three links."""
    count, nodes = len(trees), len(trees[0].parents)
    mask = torch.ones(count * nodes * nodes + (int(LENGTHS.sum()) * nodes if mode == FULL_MASK else 0)).bool()
    positions, indices = torch.empty(count * nodes, dtype=torch.int64), torch.full((3, count, nodes), -1)
    named = torch.tensor([tree.named for tree in trees])
    selected = torch.tensor([tree.selected for tree in trees]).view(count, nodes - 1)
    build_tree_kernel_efficient_cpu(named, selected, LENGTHS, mask, positions, *indices, TOPK, nodes - 1, nodes, mode)
    return mask, positions, *indices


def sees(tree: Tree, node: int) -> list[bool]:
    """The tree's nodes that a node may look at: those above it, and the root always."""
    return [other == 0 or other in above(tree, node) for other in range(len(tree.parents))]


@pytest.mark.parametrize(("nodes", "lost"), [(1, 0), (2, 0), (3, 0), (8, 0), (8, 0.4), (16, 0), (33, 0.1)])
@pytest.mark.parametrize("seed", range(5))
def test_building(nodes: int, lost: float, seed: int) -> None:
    trees = some_trees(nodes, seed, lost)
    mask, positions, *found = build(trees, QUERIES_ONLY)
    expected = [[sees(tree, node) for node in range(nodes)] for tree in trees]
    assert mask.view(len(trees), nodes, nodes).tolist() == expected
    depths = torch.tensor([[len(set(above(tree, node)) - {0}) for node in range(nodes)] for tree in trees])
    assert torch.equal(positions.view(len(trees), nodes), depths + LENGTHS[:, None])
    for links_found, links_expected in zip(found, links(trees), strict=True):
        assert torch.equal(links_found, links_expected)


def test_a_mask_over_the_whole_text() -> None:
    trees = some_trees(6, 1)
    mask, *_ = build(trees, FULL_MASK)
    expected = []
    for tree, length in zip(trees, LENGTHS.tolist(), strict=True):
        for node in range(6):
            expected += [True] * length + sees(tree, node)
    assert mask.tolist() == expected


def test_packed_masks_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="mode 2"):
        build(some_trees(3, 1), 2)


def test_a_chain_may_name_fewer_drafts_than_there_are() -> None:
    mask, positions = torch.ones(9).bool(), torch.empty(3, dtype=torch.int64)
    indices = torch.full((3, 1, 3), -1)
    named, selected, length = torch.tensor([[-1, 0]]), torch.tensor([[0, 1]]), torch.tensor([4])
    build_tree_kernel_efficient_cpu(named, selected, length, mask, positions, *indices, 1, 2, 3, QUERIES_ONLY)
    assert positions.tolist() == [4, 5, 6]
    assert indices.tolist() == [[[0, 1, 2]], [[1, 2, -1]], [[-1, -1, -1]]]
    assert torch.equal(mask.view(3, 3), torch.ones(3, 3).tril().bool())


@pytest.mark.parametrize("seed", range(5))
def test_reconstruction_from_the_mask(seed: int) -> None:
    trees = some_trees(9, seed)
    mask, positions, *expected = build(trees, QUERIES_ONLY)
    found_positions, found = torch.empty_like(positions), torch.full((3, len(trees), 9), -7)
    reconstruct_indices_from_tree_mask(mask, LENGTHS, found_positions, *found, len(trees), 9)
    assert torch.equal(found_positions, positions)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("steps", [1, 3, 9])
@pytest.mark.parametrize("seed", range(20))
def test_greedy_verification_takes_the_way_that_the_target_goes(seed: int, steps: int) -> None:
    generator, nodes, vocabulary = random.Random(seed), 10, 3
    trees = some_trees(nodes, seed)
    tokens = [[generator.randrange(vocabulary) for _ in range(nodes)] for _ in trees]
    target = [[generator.randrange(vocabulary) for _ in range(nodes)] for _ in trees]
    accepted = torch.full((len(trees), steps + 1), -1, dtype=torch.int32)
    counts, predicts = torch.empty(len(trees), dtype=torch.int32), torch.full((len(trees) * nodes,), -1)
    verify_tree_greedy_cpu(
        predicts, accepted, counts, torch.tensor(tokens), *links(trees), torch.tensor(target)
    )  # fmt: skip
    for row, tree in enumerate(trees):
        way = follow(tree, tokens[row], target[row], steps)
        assert counts[row] == len(way) - 1
        numbers = [row * nodes + node for node in way]
        assert accepted[row].tolist() == numbers + [-1] * (steps + 1 - len(way))
        expected = [target[row][node] if node in way else -1 for node in range(nodes)]
        assert predicts[row * nodes : (row + 1) * nodes].tolist() == expected


def follow(tree: Tree, tokens: list[int], target: list[int], steps: int) -> list[int]:
    """Return the nodes on the path from the root that matches the target, at most `steps` deep.

    After each node it takes the first child whose token is the target's.
    """
    way = [0]
    for _ in range(steps):
        fitting = [
            node for node, parent in enumerate(tree.parents) if parent == way[-1] and tokens[node] == target[way[-1]]
        ]
        if not fitting:
            break
        way.append(fitting[0])
    return way
