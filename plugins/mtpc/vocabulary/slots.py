"""The draft vocabularies of requests whose texts lie on the device, each in a slot of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtpc.metrics.slot_tally import SlotTally
from mtpc.prompt_lookup.on_device import Texts
from mtpc.vocabulary.language import BEGINS, LanguageDetector


class SlotLanguages:
    """`mtpc.vocabulary.requests.Reading` for a batch on the device; the host reads prompts alone, as they come.

    Shapes are static, tensors never move and nothing waits for the host, so that a CUDA graph may hold it.  Of what is
    said, special tokens are not read; the pieces of a template, which need more than one token, stand in prompts.
    What no language suits drafts from all languages together there, which one it is called matters to nobody.

    drafts: K, one less than a step says at most.  evidence: float64 [slots + 1, N], and numbers: int64 [slots + 1],
    of the vocabularies in use, -1 before the first step.  Rows without a request write to the last place.  tally:
    counts what became of drafts; None: nobody watches.
    """

    def __init__(self, detector: LanguageDetector, slots: int, drafts: int, device: torch.device) -> None:
        self.detector = detector
        self.costs = torch.from_numpy(detector.costs[: detector.vocab_size]).to(device)  # [V, N]
        self.text = torch.ones(detector.vocab_size, dtype=torch.bool)
        self.text[[token for token in detector.template.special if 0 <= token < detector.vocab_size]] = False
        self.text = self.text.to(device)
        self.places = torch.arange(drafts + 1, device=device)
        self.together = torch.tensor([detector.together or 0], device=device)
        self.evidence = torch.zeros(slots + 1, detector.costs.shape[1], dtype=torch.float64, device=device)
        self.numbers = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.tally: SlotTally | None = None

    def begin(self, slot: int, text: Sequence[int]) -> None:
        """A request has come into a slot, with its prompt and, if it was preempted, what was said."""
        evidence = torch.from_numpy(self.detector.read(self.detector.begin(), text))
        if self.numbers.is_cuda:
            evidence = evidence.pin_memory()
        self.evidence[slot].copy_(evidence, non_blocking=True)
        self.numbers[slot].fill_(-1)

    def read(self, table: Tensor, lengths: Tensor, slots: Tensor, said: Tensor, rejected: Tensor | None = None) -> None:
        """What was said in a step.

        table: token ids int32 [slots, T] of all requests, and lengths: int32 [slots], with what was said.  slots: int64
        [B], -1 for a row without a request.  said: int32 [B], so many tokens.  rejected: int32 [B], so many drafts, for
        the tally; -1 for a row that does not count.
        """
        own = torch.where(slots < 0, len(self.numbers) - 1, slots)
        texts = Texts(table, slots, lengths[slots])
        tokens = texts.tokens((texts.lengths - said)[:, None] + self.places)
        tokens = tokens.clamp(0, len(self.costs) - 1)  # a row without a request says any
        read = (self.places < said[:, None]) & self.text[tokens]
        from_each = read.flip(1).cumsum(1).flip(1)  # tokens that are read from each on
        ages = torch.where(read, self.detector.decay ** (from_each - 1).double(), 0.0)
        new = (self.costs[tokens] * ages[..., None]).sum(1)
        evidence = self.evidence[own] * self.detector.decay ** from_each[:, :1].double() + new
        self.evidence.index_copy_(0, own, evidence)
        before = self.numbers[own]
        after = self._decided(evidence, before)
        self.numbers.index_copy_(0, own, after)
        if self.tally is not None and rejected is not None:
            accepted, there = said.long() - 1, (slots >= 0) & (rejected >= 0)
            self.tally.count(before, after, accepted + rejected, accepted, there)

    def _decided(self, evidence: Tensor, current: Tensor) -> Tensor:
        """`LanguageDetector.decide` for every row, int64 [B]; current: -1 for None."""
        if self.detector.together is not None:
            evidence = evidence.index_fill(1, self.together, torch.inf)
        best, begins = evidence.min(1), current < 0
        current = torch.where(begins, evidence[:, : len(self.detector.languages)].argmin(1), current)
        worse = evidence.gather(1, current[:, None])[:, 0] - best.values
        return torch.where(worse < torch.where(begins, BEGINS, self.detector.margin), current, best.indices)

    def of(self, slots: Tensor) -> Tensor:
        """The numbers of the rows' draft vocabularies, int64 [B]; without a request, that of the first row."""
        return self.numbers[torch.where(slots < 0, slots[:1], slots)]
