"""Prompt lookup with SGLang's own drafters: their first draft token, and the mixture that SGLang's loop continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtpc.draft_length.budget import DraftBudget
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.first_draft import draw_first
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps


class NativePromptLookup:
    """Mixes prompt lookup into chains of SGLang's own drafters, which always have K tokens.

    One step: `draw_first`, then SGLang's draft loop with `mixing`.  The state between the two is in buffers, so that
    CUDA graphs of the loop read it.

    Args:
        folder: Directory of the draft model.
        drafts: Draft tokens K.
        requests: Largest number of requests in a batch.
        random_seed: The server's.
        device: Device of the drafts.
        vocab_size: V of the target.
    """

    def __init__(
        self, folder: Path, drafts: int, requests: int, random_seed: int, device: torch.device, vocab_size: int
    ) -> None:
        table, shape = CopyTable.of(folder), DraftShape(drafts, 1, drafts)
        self.lengths = WorkerLengths(table, device, DraftBudget(drafts, drafts), shape, None, True, vocab_size)
        self.drafts, self.steps = drafts, BatchSteps(random_seed)
        with device:
            tokens, chances = torch.zeros(requests, drafts, dtype=torch.int64), torch.zeros(requests, drafts)
            self.buffers = Copying(Copied(tokens, chances), 1, torch.zeros(requests))

    def draw_first(self, batch: Any) -> None:
        """Sample the first draft token of each request of SGLang's ``ScheduleBatch`` from the mixture."""
        draft_input, step = batch.spec_info, self.steps.begin(batch)
        self.lengths.begin(batch.reqs, step.mode == "greedy")
        mixing = draw_first(batch, step, self.lengths.copied(self.drafts), draft_input.draft_probs)
        mixing.drafted(draft_input.topk_index[:, 0])
        buffers = self.buffers.of_rows(slice(len(batch.reqs)))
        for buffer, value in zip(_tensors(buffers), _tensors(mixing.copying), strict=True):
            buffer.copy_(value)

    def mixing(self, forward_batch: Any) -> Mixing:
        """Return the mixture after the first draft token, for SGLang's ``ForwardBatch`` of the draft loop."""
        rows = slice(forward_batch.batch_size)
        return Mixing(self.buffers.of_rows(rows), forward_batch.sampling_info.temperatures)


def _tensors(copying: Copying) -> tuple[Tensor, Tensor, Tensor]:
    return *copying.copied, copying.weight
