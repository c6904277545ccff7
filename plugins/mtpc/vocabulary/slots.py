"""Draft vocabularies of requests whose tokens are on the device, one slot per request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtpc.metrics.slot_tally import SlotTally
from mtpc.prompt_lookup.on_device import DeviceTexts
from mtpc.vocabulary.language import START_MARGIN, LanguageDetector
from mtpc.vocabulary.requests import MAX_READ_TOKENS


class SlotLanguages:
    """`mtpc.vocabulary.requests.LanguageState` for a batch on the device; only prompts are read on the host.

    Shapes are static, tensors keep their addresses and nothing waits for the host, so a CUDA graph may contain it.
    Call `begin` when a request gets a slot; then, in each step, `read` with the emitted tokens and `of`.
    Special tokens of the output are skipped; other parts of the chat template occur in prompts only.
    A text that fits no language drafts from the union vocabulary here, whichever number it has.

    Attributes:
        evidence: Evidence of each slot, float64 [slots + 1, N]; rows without a request use the last slot.
        numbers: Vocabulary of each slot, int64 [slots + 1], -1 before the first step.
        tally: Counts drafts by vocabulary for metrics; None: metrics are off.

    Args:
        detector: Costs of tokens by draft vocabulary.
        slots: Number of request slots.
        drafts: Draft tokens per step, K; a step emits at most K + 1 tokens.
        device: Device of all tensors.
    """

    def __init__(self, detector: LanguageDetector, slots: int, drafts: int, device: torch.device) -> None:
        self.detector = detector
        self.costs = torch.from_numpy(detector.costs[: detector.vocab_size]).to(device)  # [V, N]
        self.text = torch.ones(detector.vocab_size, dtype=torch.bool)
        self.text[[token for token in detector.template.special if 0 <= token < detector.vocab_size]] = False
        self.text = self.text.to(device)
        self.offsets = torch.arange(drafts + 1, device=device)
        self.union = torch.tensor([detector.union or 0], device=device)
        self.evidence = torch.zeros(slots + 1, detector.costs.shape[1], dtype=torch.float64, device=device)
        self.numbers = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.tally: SlotTally | None = None

    def begin(self, slot: int, text: Sequence[int]) -> None:
        """Start a request in a slot.

        Args:
            slot: Slot of the request.
            text: Its prompt and, after a preemption, the output so far.
        """
        evidence = torch.from_numpy(self.detector.read(self.detector.begin(), text[-MAX_READ_TOKENS:]))
        if self.numbers.is_cuda:
            evidence = evidence.pin_memory()
        self.evidence[slot].copy_(evidence, non_blocking=True)
        self.numbers[slot].fill_(-1)

    def read(
        self, table: Tensor, lengths: Tensor, slots: Tensor, emitted: Tensor, rejected: Tensor | None = None
    ) -> None:
        """Update evidence and vocabularies with the tokens emitted in a step.

        Args:
            table: Token ids of all requests, the emitted ones included, int32 [slots, T].
            lengths: Tokens of each request, int32 [slots].
            slots: Slot of each row, int64 [B], -1 for a row without a request.
            emitted: Tokens emitted in each row, int32 [B].
            rejected: Rejected draft tokens of each row for the tally, int32 [B], -1 for a row that does not count.
        """
        slot_index = torch.where(slots < 0, len(self.numbers) - 1, slots)
        texts = DeviceTexts(table, slots, lengths[slots])
        tokens = texts.tokens((texts.lengths - emitted)[:, None] + self.offsets)
        tokens = tokens.clamp(0, len(self.costs) - 1)  # a row without a request may have any token
        read = (self.offsets < emitted[:, None]) & self.text[tokens]
        from_each = read.flip(1).cumsum(1).flip(1)  # tokens read from each position on
        ages = torch.where(read, self.detector.decay ** (from_each - 1).double(), 0.0)
        new = (self.costs[tokens] * ages[..., None]).sum(1)
        evidence = self.evidence[slot_index] * self.detector.decay ** from_each[:, :1].double() + new
        self.evidence.index_copy_(0, slot_index, evidence)
        before = self.numbers[slot_index]
        after = self._decided(evidence, before)
        self.numbers.index_copy_(0, slot_index, after)
        if self.tally is not None and rejected is not None:
            accepted, counted = emitted.long() - 1, (slots >= 0) & (rejected >= 0)
            self.tally.count(before, after, accepted + rejected, accepted, counted)

    def _decided(self, evidence: Tensor, current: Tensor) -> Tensor:
        """`LanguageDetector.decide` for every row, int64 [B]; in ``current``, -1 stands for None."""
        if self.detector.union is not None:
            evidence = evidence.index_fill(1, self.union, torch.inf)
        best, begins = evidence.min(1), current < 0
        current = torch.where(begins, evidence[:, : len(self.detector.languages)].argmin(1), current)
        worse = evidence.gather(1, current[:, None])[:, 0] - best.values
        return torch.where(worse < torch.where(begins, START_MARGIN, self.detector.margin), current, best.indices)

    def of(self, slots: Tensor) -> Tensor:
        """Return the vocabulary number of each row, int64 [B].

        Args:
            slots: Slot of each row, int64 [B]; a row without a request (-1) gets the number of the first row.
        """
        return self.numbers[torch.where(slots < 0, slots[:1], slots)]
