"""What one decoding step's drafts depend on beside the texts, made once when the step begins and passed on."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.draft import Mode


class Step(NamedTuple):
    """One row for each request of the batch.

    mode: of the batch.  temperature: float32 [B], 0 for greedy requests.  seeds, positions: int64 [B], the keys of the
    noise.  Draft vocabularies are no part of it: see `RequestVocabularies`.
    """

    mode: Mode
    temperature: Tensor
    seeds: Tensor
    positions: Tensor


class Steps:
    """Begins steps; it counts them, which keeps the noise of requests without a seed apart.

    random_seed: the server's.
    """

    def __init__(self, random_seed: int) -> None:
        self.random_seed, self.begun = random_seed, 0

    def begin(self, batch: Any) -> Step:
        """The next step, of SGLang's ``ScheduleBatch``."""
        self.begun += 1
        info = batch.sampling_info
        mode: Mode = "greedy" if info.is_all_greedy else "mixed" if info.is_any_greedy else "sampled"
        # SGLang writes a temperature of 0 as a top-k of 1.
        temperature = info.temperatures[:, 0].masked_fill(info.top_ks == 1, 0.0)
        return Step(mode, temperature, *self._noise_keys(batch))

    def _noise_keys(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Seeds and positions, int64 [B]: the request's own where SGLang keeps one, else the server's and the step's.

        SGLang keeps requests' seeds with ``--enable-deterministic-inference`` only.
        """
        seeds = batch.sampling_info.sampling_seed
        if seeds is not None:
            return seeds, batch.seq_lens
        rows = torch.arange(len(batch.seq_lens), device=batch.seq_lens.device)
        return rows + self.random_seed, torch.full_like(rows, self.begun)
