"""Trees of drafts in plain Python: a tree is the list of its prefixes, each a tuple of tokens."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from mtpc.draft import TreeDraft
from tests.oracles.windows import WindowTable

Prefix = tuple[int, ...]


def prefixes_of(tokens: list[int], parents: list[int]) -> list[Prefix]:
    """The prefix of each node of one row; a parent must come before its children."""
    prefixes: list[Prefix] = []
    for token, parent in zip(tokens, parents, strict=True):
        assert -1 <= parent < len(prefixes)
        prefixes.append((*(prefixes[parent] if parent >= 0 else ()), token))
    return prefixes


def to_tensors(prefixes: list[Prefix]) -> tuple[Tensor, Tensor]:
    """(tokens, parents), int64 [1, N] each, of prefixes whose beginnings stand before them."""
    parents = [prefixes.index(x[:-1]) if len(x) > 1 else -1 for x in prefixes]
    return torch.tensor([[x[-1] for x in prefixes]]), torch.tensor([parents])


def as_draft(prefixes: list[Prefix], probabilities: dict[Prefix, float] | None = None) -> TreeDraft:
    """One row; all scores are 0 where no probabilities are given."""
    known = dict.fromkeys(prefixes, 1.0) if probabilities is None else probabilities
    scores = torch.tensor([[known[x] for x in prefixes]], dtype=torch.float64).log()
    return TreeDraft(*to_tensors(prefixes), scores)


def random_tree(vocabulary: int, depth: int, size: int, seed: int) -> list[Prefix]:
    """A seeded tree of `size` nodes in some order that puts parents first."""
    generator = torch.Generator().manual_seed(seed)
    prefixes: list[Prefix] = []
    while len(prefixes) < size:
        above = [(), *(x for x in prefixes if len(x) < depth)]
        free = [(*x, v) for x in above for v in range(vocabulary) if (*x, v) not in prefixes]
        prefixes.append(free[int(torch.randint(len(free), (), generator=generator))])
    return prefixes


def prefix_probabilities(table: WindowTable, depth: int, first: int | None = None) -> dict[Prefix, float]:
    """q(prefix) of every prefix of 1..depth tokens; with `first`, of those that follow it, given it."""
    given: Prefix = () if first is None else (first,)
    total = table.prefix_probability(given) if given else 1.0
    return {
        x: table.prefix_probability((*given, *x)) / total
        for length in range(1, depth + 1)
        for x in product(range(table.vocabulary), repeat=length)
    }


def best_tree(probabilities: dict[Prefix, float], size: int, max_children: int | None = None) -> list[Prefix]:
    """Grown greedily, a node at a time: the most probable prefix that the tree can take next."""
    tree: list[Prefix] = []
    while len(tree) < size:
        children = {x: sum(y[:-1] == x for y in tree) for x in [(), *tree]}
        free = [
            x
            for x in probabilities
            if x not in tree and x[:-1] in children and (max_children is None or children[x[:-1]] < max_children)
        ]
        tree.append(max(free, key=probabilities.__getitem__))
    return tree
