"""BTree: a balanced binary tree of latent variables (MTPC paper, section 3.2, equation BTree)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams


@dataclass(frozen=True)
class TreeChild:
    """One side of an internal node.

    Attributes:
        index: Position of the window for a leaf, else the number of an internal node.
        is_leaf: Whether the child is a leaf.
    """

    index: int
    is_leaf: bool


@dataclass(frozen=True)
class BinaryTreeNode:
    """An internal node, which has one latent variable.

    Attributes:
        parent: Number of the parent node, -1 at the root.
        level: Depth, 0 at the root.
        children: Left and right child; a single leaf where n = 1.
    """

    parent: int
    level: int
    children: tuple[TreeChild, ...]


@dataclass(frozen=True)
class PathStep:
    """One step of the path from the root to a leaf.

    Attributes:
        node: Number of an internal node.
        side: Which side of it the leaf is on: 0 left, 1 right.
    """

    node: int
    side: int


def plan_tree(window: int) -> list[BinaryTreeNode]:
    """Return the internal nodes in breadth-first order; leaves [lo, hi) are split at lo + ceil((hi - lo) / 2)."""
    nodes: list[BinaryTreeNode] = []
    queue = [(0, window, -1, 0)]  # lo, hi, parent, level
    while queue:
        lo, hi, parent, level = queue.pop(0)
        middle = lo + (hi - lo + 1) // 2
        children = []
        for left, right in ((lo, middle), (middle, hi)):
            if right - left == 1:
                children.append(TreeChild(left, True))
            elif right - left > 1:
                queue.append((left, right, len(nodes), level + 1))
                children.append(TreeChild(len(nodes) + len(queue), False))
        nodes.append(BinaryTreeNode(parent, level, tuple(children)))
    return nodes


def paths_to_leaves(nodes: list[BinaryTreeNode]) -> list[tuple[PathStep, ...]]:
    """Return the path from the root to each position of the window, from left to right."""

    def below(node: int, above: tuple[PathStep, ...]) -> list[tuple[PathStep, ...]]:
        paths = []
        for side, child in enumerate(nodes[node].children):
            here = (*above, PathStep(node, side))
            paths += [here] if child.is_leaf else below(child.index, here)
        return paths

    return below(0, ())


class BinaryTree(Circuit):
    """n - 1 latent variables on about log2 n levels, for any window.

    The sums are (root [B, R], inner [B, n - 2, R, R]). inner[b, k - 1, a, c] is the log-probability that internal node
    k is in state c when its parent is in state a. The component of a leaf is the latent variable of the node above it.
    With n = 1 the root is the component of the only leaf, and ``inner`` is empty.
    """

    kind = "btree"
    is_chain = False
    leaf_positions: Tensor

    def __init__(self, window: int, rank: int) -> None:
        super().__init__(window, rank)
        self.nodes = plan_tree(window)
        self.paths = paths_to_leaves(self.nodes)
        self.levels = [
            [k for k, node in enumerate(self.nodes) if node.level == level] for level in range(self.nodes[-1].level + 1)
        ]
        # Message slots: leaves first, then internal nodes from the deepest level up.
        slot = {k: window + i for i, k in enumerate(k for level in reversed(self.levels) for k in level)}
        leaf_order: list[int] = []
        for depth, level in enumerate(self.levels):
            children = [self.nodes[k].children for k in level]
            flat = [child for pair in children for child in pair]
            if window > 1:
                for side in (0, 1):
                    sided = [pair[side] for pair in children]
                    self._register(f"messages_{depth}_{side}", [c.index if c.is_leaf else slot[c.index] for c in sided])
            self._register(f"leaves_below_{depth}", [i for i, child in enumerate(flat) if child.is_leaf])
            self._register(f"nodes_below_{depth}", [i for i, child in enumerate(flat) if not child.is_leaf])
            leaf_order += [child.index for child in flat if child.is_leaf]
        self._register("leaf_positions", [leaf_order.index(position) for position in range(window)])

    def _register(self, name: str, index: list[int]) -> None:
        self.register_buffer(name, torch.tensor(index, dtype=torch.int64), persistent=False)

    def _level(self, inner: Tensor, depth: int) -> Tensor:
        """Return the weights of one level below the root: inner [B, n - 2, R, R] -> [B, F, R, R]."""
        level = self.levels[depth]
        return inner[:, level[0] - 1 : level[-1]]

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the root's and the inner nodes' weights."""
        return ((self.rank,), (max(self.window - 2, 0), self.rank, self.rank))

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Compute beliefs in an upward pass of likelihoods and a downward pass, one step per level."""
        root, inner = sums
        if self.window == 1:
            return root[:, None]
        messages = evidence  # [B, slots, R]: log-probability of a child's tokens given the state above it
        for depth in range(len(self.levels) - 1, 0, -1):
            left, right = (messages[:, getattr(self, f"messages_{depth}_{side}")] for side in (0, 1))
            upward = torch.logsumexp(self._level(inner, depth) + (left + right)[:, :, None], -1)
            messages = torch.cat([messages, upward], 1)
        belief = root[:, None]  # [B, F, R]: state of each node of a level, jointly with the tokens before it
        beliefs = []
        for depth in range(len(self.levels)):
            left = messages[:, getattr(self, f"messages_{depth}_0")]
            below = torch.stack([belief, belief + left], 2).flatten(1, 2)  # [B, 2F, R]
            beliefs.append(below[:, getattr(self, f"leaves_below_{depth}")])
            if depth + 1 < len(self.levels):
                incoming = below[:, getattr(self, f"nodes_below_{depth}")]
                belief = torch.logsumexp(incoming[..., None] + self._level(inner, depth + 1), 2)
        return torch.cat(beliefs, 1)[:, self.leaf_positions]

    def start(self, params: CircuitParams) -> State:
        """Return the state at the first leaf: the beliefs of the nodes on its path."""
        root, inner = params.sums
        return self._descend(inner, [root[:, None]], root[:, None], self.paths[0][1:])

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """Move from leaf to leaf: up while a subtree ends with the token, then down the right side of the node above.

        Besides the belief, the state keeps one tensor for each node between the root and the leaf.
        Where the leaf is on the left, it is the belief of the node from outside its subtree.
        Where the leaf is on the right, it is the likelihood of the node's left side given the node's state.
        """
        inner, path, kept = sums[1], self.paths[position], list(state[:-1])
        depth, message = len(path) - 1, evidence  # log-likelihood of the subtree that ends here, given the node above
        while path[depth].side == 1:
            below = (kept.pop() + message)[:, :, None]  # [B, P, 1, R]
            message = torch.logsumexp(inner[:, path[depth].node - 1, None] + below, -1)
            depth -= 1
        belief = kept.pop() + message
        return self._descend(inner, [*kept, message], belief, self.paths[position + 1][depth + 1 :])

    def _descend(self, inner: Tensor, kept: list[Tensor], belief: Tensor, path: tuple[PathStep, ...]) -> State:
        """Go down to the first leaf of a subtree."""
        for step in path:
            belief = torch.logsumexp(belief[..., None] + inner[:, step.node - 1, None], 2)
            kept.append(belief)
        return (*kept, belief)
