"""Which draft vocabulary each request of a batch uses, from the tokens that SGLang's scheduler knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import Reading, choose_all, read_all


class Text(Sequence[int]):
    """A request's prompt and output, one after the other, without a copy of what is not read."""

    def __init__(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.prompt, self.output = prompt, output

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def __getitem__(self, index: Any) -> Any:
        """One token, or a list of those from a position on."""
        if not isinstance(index, slice):
            return self.output[index - len(self.prompt)] if index >= len(self.prompt) else self.prompt[index]
        start = index.start or 0
        return [*self.prompt[start:], *self.output[max(0, start - len(self.prompt)) :]]


class RequestVocabularies:
    """The numbers of a batch's draft vocabularies, in memory that the model knows.

    They are chosen into this memory before a step instead of travelling with it.  Where steps overlap, the scheduler
    knows of what was said a step ago; all tensor-parallel ranks decide the same.

    chosen: those of the batch, on the host.  tally: counts what is chosen; None: nobody watches.
    """

    chosen: Sequence[int] = ()
    tally: Tally | None = None

    def __init__(self, detector: LanguageDetector, requests: int, device: torch.device) -> None:
        self.detector = detector
        # By SGLang's ``Req``, not by its id, which a client may use again while the first request is still held.
        self.readings: WeakKeyDictionary[Any, Reading] = WeakKeyDictionary()
        self.numbers = torch.zeros(requests, dtype=torch.int64, device=device)

    def choose(self, requests: Sequence[Any]) -> None:
        """Write the number of each request's draft vocabulary; requests: SGLang's ``Req`` of the rows of the batch."""
        readings = [self._of(request) for request in requests]
        texts = [Text(request.origin_input_ids, request.output_ids) for request in requests]
        read_all(readings, [text[reading.tokens :] for reading, text in zip(readings, texts, strict=True)])
        self.chosen = choose_all(readings, self.tally)
        numbers = torch.tensor(self.chosen, pin_memory=self.numbers.is_cuda)
        self.numbers[: len(requests)].copy_(numbers, non_blocking=True)

    def _of(self, request: Any) -> Reading:
        if request not in self.readings:
            self.readings[request] = Reading(self.detector)
        return self.readings[request]
