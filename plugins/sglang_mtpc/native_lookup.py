"""Prompt lookup with SGLang's own drafters: their first draft token, and the mixture that SGLang's loop continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.cost import DEFAULT_COSTS, StepCost
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.draft_lengths import WorkerLengths, append_copied
from sglang_mtpc.first_draft import draw_first
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps


class NativePromptLookup:
    """Mixes prompt lookup into chains of SGLang's own drafters, which draft K tokens.

    One step: `draw_first`, then SGLang's draft loop with `mixing`.  The state between the two is in buffers, so that
    CUDA graphs of the loop read it.  A step that `is_longer` then continues its drafts with `continued`.

    Args:
        folder: Directory of the draft model.
        drafts: Draft tokens K.
        longest: Tokens of a longer draft, whose end is copied; K: no draft is longer.
        cost: Cost of decoding steps, by which steps are longer; None: it is measured on a CPU.
        requests: Largest number of requests in a batch.
        random_seed: The server's.
        device: Device of the drafts.
        vocab_size: V of the target.

    Attributes:
        is_longer: Whether the drafts of this step continue with copied tokens.  It is known before a token is drawn:
            lossless verification requires that the length does not depend on sampled draft tokens.
    """

    is_longer = False

    def __init__(
        self,
        folder: Path,
        drafts: int,
        longest: int,
        cost: StepCost | None,
        requests: int,
        random_seed: int,
        device: torch.device,
        vocab_size: int,
    ) -> None:
        table, shape, none = CopyTable.of(folder), DraftShape(longest, 1, longest), DraftBudget(0, 0)
        self.lengths = WorkerLengths(table, device, none, shape, cost or DEFAULT_COSTS, True, vocab_size)
        self.lengths.times_steps = longest > drafts and cost is None and device.type == "cpu"
        self.drafts, self.longest, self.steps = drafts, longest, BatchSteps(random_seed)
        with device:
            tokens, chances = torch.zeros(requests, drafts, dtype=torch.int64), torch.zeros(requests, drafts)
            self.buffers = Copying(Copied(tokens, chances), 1, torch.zeros(requests))

    def draw_first(self, batch: Any) -> None:
        """Sample the first draft token of each request of SGLang's ``ScheduleBatch`` from the mixture."""
        draft_input, step = batch.spec_info, self.steps.begin(batch)
        self.lengths.begin(batch.reqs, step.mode == "greedy")
        self.is_longer, self.copied = self._worth_copying(), self.lengths.copied(self.longest)
        mixing = draw_first(batch, step, self.copied.first(self.drafts), draft_input.draft_probs)
        mixing.drafted(draft_input.topk_index[:, 0])
        buffers = self.buffers.of_rows(slice(len(batch.reqs)))
        for buffer, value in zip(_tensors(buffers), _tensors(mixing.copying), strict=True):
            buffer.copy_(value)

    def mixing(self, forward_batch: Any) -> Mixing:
        """Return the mixture after the first draft token, for SGLang's ``ForwardBatch`` of the draft loop."""
        rows = slice(forward_batch.batch_size)
        return Mixing(self.buffers.of_rows(rows), forward_batch.sampling_info.temperatures)

    def continued(self, draft: Draft) -> Draft:
        """Continue the drafter's draft with copied tokens, [B, K] -> [B, longest]."""
        return append_copied(draft, self.copied)

    def _worth_copying(self) -> bool:
        """Return whether copied tokens after the drafter's are worth their verification, if all before are copied."""
        rate = self.lengths.controller.rate_of_copies
        return self.longest > self.drafts and rate(self.longest) > rate(self.drafts)


def _tensors(copying: Copying) -> tuple[Tensor, Tensor, Tensor]:
    return *copying.copied, copying.weight
