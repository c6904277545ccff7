"""Who follows whom in a tree of drafts: in the form in which SGLang builds its verification input, and read off it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

NOWHERE = -2  # the parent of a node that SGLang has left without one; verification never comes to it


class Links(NamedTuple):
    """How SGLang's tree builder is told who follows whom.

    selected: int64 [B, N]; a node's value, divided by the number of children, is an index into ``parents``, where 0
    is the root.  parents: int64 [B, children (depth - 1) + 1]; the values of the nodes that are named there.
    """

    selected: Tensor
    parents: Tensor


@lru_cache(maxsize=256)
def chain_links(rows: int, nodes: int, device: torch.device) -> Links:
    """Every node follows the one before it."""
    selected = torch.arange(nodes, device=device).repeat(rows, 1)
    return Links(selected, selected[:, : nodes if nodes > 1 else 0] - 1)


def tree_links(parents: Tensor, children: int) -> Links:
    """Any tree with at most ``children`` children a node, for a builder that is told of a depth of N.

    parents: int64 [B, N], -1 for a child of the root, earlier nodes otherwise.  Node i (from 1) is named at index i,
    and its children share the values from i times ``children`` on.
    """
    nodes = parents.shape[1]
    siblings = parents[:, :, None] == parents[:, None, :]  # [B, N, N]
    rank = siblings.tril(-1).sum(2)
    selected = (parents + 1) * children + rank
    named = F.pad(selected, (1, children * (nodes - 1) - nodes), value=-1)  # cut to the builder's width, or filled up
    return Links(selected, named)


def parents_of(first_children: Tensor, next_siblings: Tensor) -> Tensor:
    """The parents of a built tree's nodes: int64 [B, N], -1 for the root, or `NOWHERE`.

    first_children, next_siblings: int64 [B, N + 1], ``retrieve_next_token`` and ``retrieve_next_sibling`` of SGLang,
    the root first; -1 where there is none.  O(N log N), in log2 N steps.
    """
    rows, size = first_children.shape
    own = torch.arange(size, device=first_children.device).expand(rows, size)
    # One column more takes up what is written for nodes that have no child, or no further sibling.
    parent = torch.full((rows, size + 1), NOWHERE + 1, device=own.device)  # of first children
    parent.scatter_(1, first_children.masked_fill(first_children < 0, size), own)
    eldest = torch.arange(size + 1, device=own.device).repeat(rows, 1)  # itself, then the sibling before it, and so on
    eldest.scatter_(1, next_siblings.masked_fill(next_siblings < 0, size), own)
    eldest[:, size] = size
    for _ in range(size.bit_length()):  # each round doubles how far back is seen
        eldest = eldest.gather(1, eldest)
    return parent.gather(1, eldest[:, 1:size]) - 1
