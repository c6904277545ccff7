"""Training batches of overlapping windows of text, with the target's hidden states and logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.byte_target import sample_batch
from mtpc.lab.training.settings import BatchShape
from mtpc.lab.training.text_states import TextStates
from mtpc.methods.drafter import Drafter


class TrainingWindows(NamedTuple):
    """Windows of n tokens after B positions.

    Attributes:
        hidden: Hidden state h_t of the target at each position, [B, d].
        tokens: Tokens x_{t+1}..x_{t+n}, int64 [B, n].
        logits: Logits of the target, float32 [B, n, V]. Entry j predicts tokens[:, j].
        texts: The texts around the positions, for drafters that adapt the target's layers; None: there is none.
    """

    hidden: Tensor
    tokens: Tensor
    logits: Tensor
    texts: TextStates | None = None

    def split(self, size: int) -> Iterator[TrainingWindows]:
        """Split into micro-batches of at most ``size`` positions, or of one text where adapters read whole texts."""
        if self.texts is not None:
            in_each = self.texts.positions_per_text
            size = max(1, size // in_each) * in_each
        parts = zip(*(each.split(size) for each in (self.hidden, self.tokens, self.logits)), strict=True)
        for number, (hidden, tokens, logits) in enumerate(parts):
            texts = None if self.texts is None else self.texts.part(slice(number * size, (number + 1) * size))
            yield TrainingWindows(hidden, tokens, logits, texts)

    def read_by(self, drafter: Drafter) -> Tensor:
        """Return the states that a drafter's circuit reads, [B, d]: the target's, or those of its adapted layers."""
        return self.hidden if self.texts is None else self.texts.read_by(drafter, self.hidden)


def training_windows(
    target: FrozenTarget,
    tokens: np.ndarray,
    shape: BatchShape,
    window: int,
    seed: int,
    below: Collection[int] = (),
) -> TrainingWindows:
    """Return windows after random positions of random texts; equal seeds give equal windows.

    Args:
        target: Frozen target.
        tokens: Token stream of the corpus.
        shape: Texts, their context and positions per text.
        window: Tokens n of a window.
        seed: Seed of the texts and positions.
        below: Layers of the target whose input states adapted layers read.
    """
    generator = np.random.default_rng(seed)
    texts = sample_batch(tokens, shape.texts, shape.context + window, generator)
    features = target.features(texts, below)
    starts = np.stack([generator.choice(shape.context, shape.positions, replace=False) for _ in range(shape.texts)])
    rows = torch.arange(shape.texts)[:, None].expand(-1, shape.positions).reshape(-1)
    positions = torch.from_numpy(starts).reshape(-1)
    ahead = positions[:, None] + torch.arange(window)  # [B, n]; logits at t + j - 1 predict x_{t+j}
    context = {number: states[:, : shape.context].clone() for number, states in features.below.items()}
    return TrainingWindows(
        features.hidden[rows, positions].clone(),
        texts[rows[:, None], ahead + 1].to(target.device),
        features.logits[rows[:, None], ahead].clone(),
        TextStates(context, rows, positions) if below else None,
    )
