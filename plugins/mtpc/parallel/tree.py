"""Draft trees of the most probable continuations under a circuit.

The expected number of accepted draft tokens is the sum of q(x_1..x_d) over the nodes of the tree, under the draft
distribution. So the best tree of N nodes has the N most probable prefixes.
A prefix is at least as probable as its continuations, so these prefixes form a tree.
The conditionals of a circuit are exact, so their probabilities are known while the tree grows. EAGLE-2 (Li et al. 2024)
has to estimate them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.base import State
from mtpc.circuits.params import known_evidence, token_evidence
from mtpc.draft import TreeDraft
from mtpc.errors import MTPCError


class Level(NamedTuple):
    """Candidates of one depth.

    Attributes:
        tokens: int64 [B, P], the last token of each prefix.
        parents: int64 [B, P], the index in the level above.
        scores: [B, P], log q of each prefix, at most that of its parent.
    """

    tokens: Tensor
    parents: Tensor
    scores: Tensor


def level_widths(size: int, depth: int, vocabulary: int, max_children: int | None = None) -> list[int]:
    """Return how many candidates of each depth can be among the ``size`` most probable prefixes.

    A node at depth i has i - 1 ancestors in the tree, so at most size - i + 1 nodes have that depth.

    Args:
        size: N, nodes of the tree.
        depth: Most tokens of a path.
        vocabulary: V.
        max_children: Most children of a node; None: any number.

    Returns:
        The width of each level.

    Raises:
        MTPCError: Where a limit is not positive, or the limits allow fewer than N nodes.
    """
    limits = {"size": size, "depth": depth, "max_children": max_children}
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise MTPCError(f"a draft tree needs a {name} of at least 1, not {limit}.")
    children = min(vocabulary, max_children or vocabulary)
    widths, room = [], 1
    for level in range(min(depth, size)):
        room = min(room * children, size - level)
        widths.append(room)
    if sum(widths) < size:
        given = ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None and name != "size")
        raise MTPCError(f"a draft tree of {size} nodes does not fit: {given} leave room for {sum(widths)}.")
    return widths


def grow_tree(
    circuit: Circuit,
    params: CircuitParams,
    token: Tensor | None,
    size: int,
    depth: int,
    max_children: int | None = None,
) -> TreeDraft:
    """Grow the tree of the most probable prefixes of each circuit.

    Level by level, with static shapes and without synchronization with the host.
    Each level takes O(N R V) for the conditionals and O(N V) for their largest, in addition to `Circuit.advance` for N
    prefixes. Memory is O(N (V + R^2)). Ties are broken like in `torch.topk`.

    Args:
        circuit: Structure of the circuits.
        params: Of B circuits.
        token: int64 [B], the first token of the window where it is evidence, as an index of the leaves' last axis, -1
            where they lack it; or None.
        size: N, nodes of the tree.
        depth: Most tokens of a path.
        max_children: Most children of a node; the tree is then the best one under this limit. With 1 and size <= depth
            it is the greedy chain. None: any number.

    Returns:
        The tree, with tokens as indices of the leaves' last axis.

    Raises:
        MTPCError: Where the limits do not fit, see `level_widths`.
    """
    params = params.upcast()
    probs = params.leaves.exp()
    state, position = circuit.start(params), 0
    if token is not None:
        state = circuit.advance(params.sums, 0, state, known_evidence(params.leaves[:, :1], token[:, None])[0])
        position = 1
    widths = level_widths(size, depth, probs.shape[3], max_children)
    levels: list[Level] = []
    scores = probs.new_zeros(len(probs), 1)  # scores of the level above
    for room in widths:
        if levels:
            state = _continue(circuit, params, position, state, levels[-1])
            position += 1
        levels.append(_best_children(state[-1], probs[:, position], scores, room, max_children))
        scores = levels[-1].scores
    return best_nodes(levels, size)


def _best_children(belief: Tensor, probs: Tensor, scores: Tensor, room: int, max_children: int | None) -> Level:
    """Return the ``room`` most probable continuations of P prefixes.

    ``belief`` is [B, P, R], ``probs`` [B, R, V] and ``scores`` [B, P].
    """
    weights = torch.softmax(belief, -1).nan_to_num(0.0)  # an impossible prefix has impossible continuations
    count = min(max_children or room, room, probs.shape[2])
    conditionals, tokens = (weights @ probs).topk(count)  # [B, P, count]
    # Rounding must not make a child more probable than its parent: parents have to come first by score.
    joint = (scores[..., None] + conditionals.log()).minimum(scores[..., None]).flatten(1)
    best, index = joint.topk(room)
    return Level(tokens.flatten(1).gather(1, index), index // count, best)


def _continue(circuit: Circuit, params: CircuitParams, position: int, state: State, level: Level) -> State:
    """Return the states of a level's nodes from those of the level above: one per node instead of one per parent."""
    leaves = params.leaves[:, position : position + 1].expand(-1, level.tokens.shape[1], -1, -1)  # [B, P, R, V]
    inherited = tuple(
        tensor.gather(1, level.parents[..., None].expand(-1, -1, tensor.shape[2])) for tensor in state
    )  # [B, P, R] each
    return circuit.advance(params.sums, position, inherited, token_evidence(leaves, level.tokens))


def best_nodes(levels: Sequence[Level], size: int) -> TreeDraft:
    """Return the tree of the best nodes of all levels.

    A stable sort keeps parents, which are in earlier levels, before children of equal score.

    Args:
        levels: Candidates of each depth, the first level first.
        size: N, at most the number of candidates.

    Returns:
        A tree of N nodes.
    """
    scores = torch.cat([level.scores for level in levels], 1)  # [B, M]
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    kept = order[:, :size]  # [B, N]
    widths = [level.tokens.shape[1] for level in levels]
    offsets = [sum(widths[:i]) - widths[i - 1] for i in range(1, len(levels))]  # where the level above starts
    above = [level.parents + offset for level, offset in zip(levels[1:], offsets, strict=True)]
    parents = torch.cat([torch.full_like(levels[0].parents, -1), *above], 1).gather(1, kept)
    rank = torch.empty_like(scores, dtype=torch.int64)  # index in the tree of each candidate; read for kept ones only
    rank = rank.scatter(1, kept, torch.arange(size, device=kept.device).expand_as(kept))
    tokens = torch.cat([level.tokens for level in levels], 1).gather(1, kept)
    parents = torch.where(parents < 0, parents, rank.gather(1, parents.clamp_min(0)))
    return TreeDraft(tokens, parents, ranked[:, :size])
