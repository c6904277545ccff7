"""Every question about a window's distribution, answered from the table of all windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WindowTable:
    """joint: float64 of shape (V,) * n, the probability of every window."""

    joint: Array

    @property
    def window(self) -> int:
        """The number n of tokens."""
        return self.joint.ndim

    @property
    def vocabulary(self) -> int:
        """The number V of tokens to choose from."""
        return self.joint.shape[0]

    def total(self) -> float:
        """The mass of all windows: 1 for a normalised circuit."""
        return float(self.joint.sum())

    def prefix_probability(self, prefix: tuple[int, ...]) -> float:
        """q(x_1..x_i), the mass of the windows that begin so."""
        return float(self.joint[prefix].sum())

    def log_prob(self, x: tuple[int, ...]) -> float:
        """Log q(x_1..x_n)."""
        return _log(self.joint[x])

    def prefix_log_probs(self, x: tuple[int, ...]) -> Array:
        """[n]: log q(x_1..x_i) for i = 1..n."""
        return np.array([_log(self.prefix_probability(x[: i + 1])) for i in range(self.window)])

    def conditional(self, prefix: tuple[int, ...]) -> Array:
        """[V]: q(x_i = v | x_<i); needs a prefix of positive probability."""
        below = [self.prefix_probability((*prefix, v)) for v in range(self.vocabulary)]
        return np.array(below) / self.prefix_probability(prefix)

    def conditionals(self, x: tuple[int, ...]) -> Array:
        """[n, V]: the conditional at every position along x."""
        return np.stack([self.conditional(x[:i]) for i in range(self.window)])

    def condition(self, first: int) -> Self:
        """The table of q(. | x_1 = first), zero for every other first token."""
        joint = np.zeros_like(self.joint)
        joint[first] = self.joint[first] / self.joint[first].sum()
        return type(self)(joint)

    def greedy(self, first: int | None = None) -> tuple[int, ...]:
        """Left to right, the most likely token given those before it, from `first` on where it is given."""
        x: tuple[int, ...] = () if first is None else (first,)
        while len(x) < self.window:
            x = (*x, int(self.conditional(x).argmax()))
        return x


def _log(probability: float) -> float:
    return float(np.log(probability)) if probability > 0.0 else -np.inf
