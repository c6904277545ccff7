"""Every window of a circuit by brute force, from the equations of MTPC (arXiv 2511.11346, section 3.2) alone.

Loops in float64 over all latent assignments and all V^n windows: slow and simple.  They follow the equations (FF),
(CP), (HMM), (BTree) and the parameter layout of `CircuitParams`, without the circuits' own code.  They take one row at
a time: leaves [n, R, V] and sums without the batch dimension, as probabilities, not as logarithms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def enumerate_windows(kind: str, leaves: Array, sums: Sequence[Array]) -> Array:
    """The probability of every window, shape (V,) * n."""
    window, _, vocabulary = leaves.shape
    weight, components = {"ff": _ff, "cp": _cp, "hmm": _hmm, "btree": _btree}[kind](leaves, sums)
    table = np.zeros((vocabulary,) * window)
    for latents, latent_probability in weight.items():
        if latent_probability == 0.0:
            continue
        chosen = components(latents)  # the component of each position's leaf
        for x in product(range(vocabulary), repeat=window):
            table[x] += latent_probability * prod(leaves[i, chosen[i], x[i]] for i in range(window))
    return table


def _ff(leaves, sums):
    """Equation (FF): no latent."""
    assert leaves.shape[1] == 1
    assert len(sums) == 0
    return {(): 1.0}, lambda latents: [0] * leaves.shape[0]


def _cp(leaves, sums):
    """Equation (CP): one latent, shared by all positions."""
    window, rank, _ = leaves.shape
    (weights,) = sums
    return {(z,): weights[z] for z in range(rank)}, lambda latents: [latents[0]] * window


def _hmm(leaves, sums):
    """Equation (HMM): a chain of latents, one for each position."""
    window, rank, _ = leaves.shape
    initial, transitions = sums
    return {
        z: initial[z[0]] * prod(transitions[i - 1][z[i - 1], z[i]] for i in range(1, window))
        for z in product(range(rank), repeat=window)
    }, lambda latents: list(latents)


def _btree(leaves, sums):
    """Equation (BTree): a latent for each inner node of the tree, a leaf's component is that of the node above it."""
    window, rank, _ = leaves.shape
    root, inner = sums
    parents, node_above_leaf = binary_tree(window)
    return {
        z: root[z[0]] * prod(inner[k - 1][z[parents[k]], z[k]] for k in range(1, len(parents)))
        for z in product(range(rank), repeat=len(parents))
    }, lambda latents: [latents[node] for node in node_above_leaf]


def binary_tree(window: int) -> tuple[list[int], list[int]]:
    """The parent of each internal node (breadth first, the root's is -1) and the internal node above each leaf."""
    parents: list[int] = []
    node_above_leaf = [0] * window
    waiting = deque([(0, window, -1)])
    while waiting:
        low, high, parent = waiting.popleft()
        node = len(parents)
        parents.append(parent)
        middle = low + (high - low + 1) // 2  # the left part is the larger one
        for part_low, part_high in ((low, middle), (middle, high)):
            if part_high - part_low == 1:
                node_above_leaf[part_low] = node
            elif part_high - part_low > 1:
                waiting.append((part_low, part_high, node))
    return parents, node_above_leaf


def btree_by_recursion(x: Sequence[int], leaves: Array, root: Array, inner: Array) -> float:
    """Probability of one window by the recursion of equation (BTree), a second opinion on `_btree`."""
    numbers: dict[tuple[int, int], int] = {}  # internal node by its span
    level = [(0, len(x))]
    while level:  # level by level, left to right: breadth first
        below = []
        for low, high in level:
            numbers[low, high] = len(numbers)
            middle = low + -(-(high - low) // 2)
            below += [part for part in ((low, middle), (middle, high)) if part[1] - part[0] > 1]
        level = below

    def span(low: int, high: int, parent: int | None) -> float:
        """q(x_low..x_high-1 | latent of the node above)."""
        if low == high:
            return 1.0
        if high - low == 1 and parent is not None:
            return float(leaves[low, parent, x[low]])
        weights = root if parent is None else inner[numbers[low, high] - 1][parent]
        middle = low + -(-(high - low) // 2)
        return sum(float(w) * span(low, middle, z) * span(middle, high, z) for z, w in enumerate(weights))

    return span(0, len(x), None)
