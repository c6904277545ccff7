"""Training batches of overlapping windows of text, with the target's hidden states and logits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.byte_target import sample_batch
from mtpc.lab.training.settings import BatchShape


class TrainingWindows(NamedTuple):
    """Windows of n tokens after B positions.

    Attributes:
        hidden: Hidden state h_t of the target at each position, [B, d].
        tokens: Tokens x_{t+1}..x_{t+n}, int64 [B, n].
        logits: Logits of the target, float32 [B, n, V]. Entry j predicts tokens[:, j].
    """

    hidden: Tensor
    tokens: Tensor
    logits: Tensor


def training_windows(
    target: FrozenTarget, tokens: np.ndarray, shape: BatchShape, window: int, seed: int
) -> TrainingWindows:
    """Return windows after random positions of random texts; equal seeds give equal windows.

    Args:
        target: Frozen target.
        tokens: Token stream of the corpus.
        shape: Texts, their context and positions per text.
        window: Tokens n of a window.
        seed: Seed of the texts and positions.
    """
    generator = np.random.default_rng(seed)
    texts = sample_batch(tokens, shape.texts, shape.context + window, generator)
    features = target.features(texts)
    starts = np.stack([generator.choice(shape.context, shape.positions, replace=False) for _ in range(shape.texts)])
    rows = torch.arange(shape.texts)[:, None].expand(-1, shape.positions).reshape(-1)
    positions = torch.from_numpy(starts).reshape(-1)
    ahead = positions[:, None] + torch.arange(window)  # [B, n]; logits at t + j - 1 predict x_{t+j}
    return TrainingWindows(
        features.hidden[rows, positions].clone(),
        texts[rows[:, None], ahead + 1].to(target.device),
        features.logits[rows[:, None], ahead].clone(),
    )
