"""Drafts in the form in which SGLang builds its verification input."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Links(NamedTuple):
    """How SGLang's tree builder is told who follows whom.

    selected: int64 [B, N]; a node's value, divided by the number of children, is an index into ``parents``, where 0
    is the root.  parents: int64 [B, children (steps - 1) + 1]; the values of the nodes that are named there.
    """

    selected: Tensor
    parents: Tensor


@lru_cache(maxsize=256)
def chain_links(rows: int, nodes: int, device: torch.device) -> Links:
    """Every node follows the one before it."""
    selected = torch.arange(nodes, device=device).repeat(rows, 1)
    return Links(selected, selected[:, : nodes if nodes > 1 else 0] - 1)


def tree_links(parents: Tensor, children: int) -> Links:
    """Any tree with at most ``children`` children a node, for a builder that is told of N steps.

    parents: int64 [B, N], -1 for a child of the root, earlier nodes otherwise.  Node i (from 1) is named at place i,
    and its children share the values from i times ``children`` on.
    """
    nodes = parents.shape[1]
    siblings = parents[:, :, None] == parents[:, None, :]  # [B, N, N]
    rank = siblings.tril(-1).sum(2)
    selected = (parents + 1) * children + rank
    named = F.pad(selected, (1, children * (nodes - 1) - nodes), value=-1)  # cut to the builder's width, or filled up
    return Links(selected, named)
