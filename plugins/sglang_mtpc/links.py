"""Links between the nodes of a draft tree, converted to and from the form that SGLang's tree builder uses."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

NO_PARENT = -2  # parent of a node that SGLang left without one; verification never reaches it


class TreeLinks(NamedTuple):
    """Links of draft trees as input of SGLang's tree builder.

    Attributes:
        selected: int64 [B, N]; a node's value divided by the number of children is an index into ``parents``, where
            index 0 is the root.
        parents: int64 [B, children (depth - 1) + 1]; values of the nodes that have children.
    """

    selected: Tensor
    parents: Tensor


@lru_cache(maxsize=256)
def chain_links(rows: int, nodes: int, device: torch.device) -> TreeLinks:
    """Return the links of chains, where each node follows the preceding one."""
    selected = torch.arange(nodes, device=device).repeat(rows, 1)
    return TreeLinks(selected, selected[:, : nodes if nodes > 1 else 0] - 1)


def tree_links(parents: Tensor, children: int) -> TreeLinks:
    """Return the links of any trees, for a builder whose depth is set to N.

    Node i (from 1) is at index i of ``parents``, and its children have the values from i times ``children`` on.

    Args:
        parents: int64 [B, N], -1 for a child of the root, otherwise an earlier node.
        children: Most children of a node.

    Returns:
        The links.
    """
    nodes = parents.shape[1]
    siblings = parents[:, :, None] == parents[:, None, :]  # [B, N, N]
    rank = siblings.tril(-1).sum(2)
    selected = (parents + 1) * children + rank
    named = F.pad(selected, (1, children * (nodes - 1) - nodes), value=-1)  # cut or padded to the builder's width
    return TreeLinks(selected, named)


def parents_of(first_children: Tensor, next_siblings: Tensor) -> Tensor:
    """Return the parents of the nodes of a tree that SGLang has built, in O(N log N).

    Args:
        first_children: SGLang's ``retrieve_next_token``, int64 [B, N + 1], root first; -1 for none.
        next_siblings: SGLang's ``retrieve_next_sibling``, int64 [B, N + 1], root first; -1 for none.

    Returns:
        int64 [B, N]: an earlier node, -1 for the root, or `NO_PARENT`.
    """
    rows, size = first_children.shape
    numbers = torch.arange(size, device=first_children.device).expand(rows, size)
    # An extra column receives the writes of nodes that have no child, or no next sibling.
    parent = torch.full((rows, size + 1), NO_PARENT + 1, device=numbers.device)  # of first children
    parent.scatter_(1, first_children.masked_fill(first_children < 0, size), numbers)
    eldest = torch.arange(size + 1, device=numbers.device).repeat(rows, 1)  # becomes each node's first sibling
    eldest.scatter_(1, next_siblings.masked_fill(next_siblings < 0, size), numbers)
    eldest[:, size] = size
    for _ in range(size.bit_length()):  # each round doubles the distance to the sibling
        eldest = eldest.gather(1, eldest)
    return parent.gather(1, eldest[:, 1:size]) - 1
