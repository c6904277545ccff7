"""How long the drafts of a batch are: as long as what they bring is worth the time that they take."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field


class StepCost(BaseModel):
    """What a step of the engine takes, in steps that say one token to one request without a draft.

    A step that reads n tokens, pending ones and drafts, takes 1 + token (n - 1); the drafter's own draft of a batch
    takes ``draft`` more, however many requests there are, and ``row`` for each of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    token: float = Field(default=0.05, gt=0, le=10)
    draft: float = Field(default=0.15, ge=0, le=100)
    row: float = Field(default=0.02, ge=0, le=100)

    def reading(self, tokens: int) -> float:
        """A step that reads so many tokens, drafting apart."""
        return 1.0 + self.token * (tokens - 1)

    def drafting(self, rows: int) -> float:
        """The drafter's own draft of so many requests."""
        return self.draft + self.row * rows


def best_lengths(reached: np.ndarray, cost: StepCost, spent: float = 0.0) -> np.ndarray:
    """The lengths of a batch's drafts that bring the most tokens for the time, int64 [B].

    reached: float64 [B, m], the chances that each token of a draft is accepted with all before it: they fall along a
    row.  spent: what the step has cost already.  With lengths k_b a step brings B + sum_b sum_{i <= k_b} reached[b, i]
    tokens in 1 + token (B + sum_b k_b - 1) + spent: as each token costs the same, the best set of any size is that of
    the largest chances, which are prefixes of the rows, and the ratio falls once it has fallen.
    """
    rows, width = reached.shape
    order = np.argsort(-reached, axis=None, kind="stable")  # of equal ones of a row the first goes first
    brought = rows + np.concatenate([[0.0], np.cumsum(reached.ravel()[order])])
    time = cost.reading(rows) + spent + cost.token * np.arange(len(brought))
    chosen = order[: int(np.argmax(brought / time))]
    return np.bincount(chosen // width, minlength=rows) if width else np.zeros(rows, dtype=np.int64)


def tokens_per_time(reached: np.ndarray, lengths: np.ndarray, cost: StepCost, spent: float = 0.0) -> float:
    """What a step with drafts of these lengths brings, over what it takes."""
    rows, width = reached.shape
    inside = np.arange(width) < lengths[:, None]
    return float((rows + reached[inside].sum()) / (cost.reading(rows + int(lengths.sum())) + spent))
