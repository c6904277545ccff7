"""States between the target's layers of whole texts, which adapted layers read in training."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.methods.drafter import Drafter


class TextStates(NamedTuple):
    """States of whole texts, from which adapted layers compute those of m positions.

    Attributes:
        below: States that enter a layer of the target, [texts, T, d], by the layer's number.
        rows: The text of each position, int64 [m], ascending.
        positions: The positions in their texts, int64 [m].
    """

    below: dict[int, Tensor]
    rows: Tensor
    positions: Tensor

    @property
    def positions_per_text(self) -> int:
        """Positions of each text, where all texts have equally many."""
        return len(self.rows) // len(next(iter(self.below.values())))

    def part(self, some: slice) -> TextStates:
        """Return some of the positions, with their texts alone."""
        rows = self.rows[some]
        texts = slice(int(rows[0]), int(rows[-1]) + 1)
        return TextStates(
            {layer: states[texts] for layer, states in self.below.items()}, rows - rows[0], self.positions[some]
        )

    def read_by(self, drafter: Drafter, hidden: Tensor) -> Tensor:
        """Return the states that a drafter's parallel part reads, [m, d].

        Args:
            drafter: Drafter in training; adapted layers are bound to the target.
            hidden: The target's last states at the positions, [m, d], which drafters without adapted layers read.
        """
        part = drafter.autoregressive
        if not isinstance(part, AdaptedLayers):
            return hidden
        below = self.below[part.config.state_below]
        whole = part(None, below, torch.arange(below.shape[1], device=below.device)[None])
        return whole[self.rows, self.positions]
