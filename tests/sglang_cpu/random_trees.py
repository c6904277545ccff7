"""Random draft trees in EAGLE's form, and what follows from their parents by walking."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, tensor

TOPK = 3  # most children of a node
OUTSIDE = 10**6  # the value of a draft that is not in the tree


class Tree(NamedTuple):
    """parents: of each node, -1 for the root and for nodes whose parent is not in the tree.

    selected and named describe it as `build_tree_kernel_efficient_cpu` takes it.
    """

    parents: list[int]
    selected: list[int]
    named: list[int]


def make_tree(nodes: int, generator: random.Random, lost: float = 0.0) -> Tree:
    """A tree of ``nodes`` nodes; each draft's parent is lost with that probability."""
    parents, children = [-1], [0] * nodes
    places = [0, *generator.sample(range(1, nodes), nodes - 1)]  # where parent_list names each node
    named, selected = [-1] * nodes, []
    for node in range(1, nodes):
        parent = generator.choice([earlier for earlier in range(node) if children[earlier] < TOPK])
        value = places[parent] * TOPK + children[parent]
        children[parent] += 1
        named[places[node]] = value
        selected.append(value)
        parents.append(parent)
    for node in range(1, nodes):
        if parents[node] > 0 and generator.random() < lost:
            named[places[parents[node]]] = OUTSIDE
    gone = {node for node in range(1, nodes) if named[places[node]] == OUTSIDE}
    return Tree([-1 if parent in gone else parent for parent in parents], selected, named)


def above(tree: Tree, node: int) -> list[int]:
    """The node and all above it, from below."""
    way = []
    while node != -1:
        way.append(node)
        node = tree.parents[node]
    return way


def children(tree: Tree, node: int) -> list[int]:
    """The children of a node in their order."""
    return [child for child, parent in enumerate(tree.parents) if parent == node and child > 0]


def links(trees: list[Tree]) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers, first children and next siblings of all nodes: int64 [B, N] each."""
    size = len(trees[0].parents)
    numbers = tensor([[row * size + node for node in range(size)] for row in range(len(trees))])
    first = tensor([[(*children(tree, node), -1)[0] for node in range(size)] for tree in trees])
    following = []
    for tree in trees:
        siblings = [-1] * size
        for method in (children(tree, node) for node in range(size)):
            for child, later in pairwise(method):
                siblings[child] = later
        following.append(siblings)
    return numbers, first, tensor(following)
