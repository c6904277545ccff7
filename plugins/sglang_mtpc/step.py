"""Context of a decoding step: temperatures and noise keys of its requests, created once when the step begins."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.draft import Mode


class BatchStep(NamedTuple):
    """Sampling parameters of a step, one row for each of B requests.

    Draft vocabularies are not included: see `SGLangRequestVocabularies`.

    Attributes:
        mode: "greedy" when every temperature is 0, "sampled" when none is, "mixed" otherwise.
        temperature: float32 [B], 0 for greedy requests.
        seeds: int64 [B], with ``positions`` the keys of the noise.
        positions: int64 [B].
    """

    mode: Mode
    temperature: Tensor
    seeds: Tensor
    positions: Tensor


class BatchSteps:
    """Creates the context of each step, and counts steps so that noise differs between them.

    Args:
        random_seed: The server's.
    """

    def __init__(self, random_seed: int) -> None:
        self.random_seed, self.begun = random_seed, 0

    def begin(self, batch: Any) -> BatchStep:
        """Return the context of the next step, for SGLang's ``ScheduleBatch``."""
        self.begun += 1
        info = batch.sampling_info
        mode: Mode = "greedy" if info.is_all_greedy else "mixed" if info.is_any_greedy else "sampled"
        # SGLang writes a temperature of 0 as a top-k of 1.
        temperature = info.temperatures[:, 0].masked_fill(info.top_ks == 1, 0.0)
        return BatchStep(mode, temperature, *self._noise_keys(batch))

    def _noise_keys(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return seeds and positions, int64 [B]: the requests', or else the server's seed and the step's number.

        SGLang only keeps requests' seeds with ``--enable-deterministic-inference``.
        """
        seeds = batch.sampling_info.sampling_seed
        if seeds is not None:
            return seeds, batch.seq_lens
        rows = torch.arange(len(batch.seq_lens), device=batch.seq_lens.device)
        return rows + self.random_seed, torch.full_like(rows, self.begun)
