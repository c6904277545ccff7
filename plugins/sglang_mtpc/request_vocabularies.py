"""Choice of a draft vocabulary for each request of a batch, from the tokens that SGLang's scheduler holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import LanguageState, choose_all, read_all


class RequestTokens(Sequence[int]):
    """Prompt and output tokens of a request as one sequence, without a copy.

    Args:
        prompt: Prompt tokens.
        output: Output tokens.
    """

    def __init__(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.prompt, self.output = prompt, output

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def __getitem__(self, index: Any) -> Any:
        """Return one token, or for a slice the list of all tokens from its start on."""
        if not isinstance(index, slice):
            return self.output[index - len(self.prompt)] if index >= len(self.prompt) else self.prompt[index]
        start = index.start or 0
        return [*self.prompt[start:], *self.output[max(0, start - len(self.prompt)) :]]


class SGLangRequestVocabularies:
    """Draft vocabulary numbers of a batch, in a buffer that the draft model reads.

    `choose` must be called before each step.  With overlapping steps the scheduler knows all tokens but those of the
    last step.  All tensor-parallel ranks choose the same vocabularies.

    Args:
        detector: Detects languages.
        requests: Largest number of requests in a batch.
        device: Device of the buffer.

    Attributes:
        chosen: Vocabulary number of each request of the batch, on the host.
        numbers: The same on the device, int64 [requests].
        tally: Counts the choices; None: metrics are disabled.
    """

    chosen: Sequence[int] = ()
    tally: Tally | None = None

    def __init__(self, detector: LanguageDetector, requests: int, device: torch.device) -> None:
        self.detector = detector
        # Key: SGLang's ``Req``, not its id, which a client may reuse while the first request still exists.
        self.readings: WeakKeyDictionary[Any, LanguageState] = WeakKeyDictionary()
        self.numbers = torch.zeros(requests, dtype=torch.int64, device=device)

    def choose(self, requests: Sequence[Any]) -> None:
        """Choose the draft vocabulary of each request; ``requests`` are SGLang's ``Req`` of the batch's rows."""
        readings = [self._of(request) for request in requests]
        texts = [RequestTokens(request.origin_input_ids, request.output_ids) for request in requests]
        read_all(readings, [text[reading.tokens :] for reading, text in zip(readings, texts, strict=True)])
        self.chosen = choose_all(readings, self.tally)
        numbers = torch.tensor(self.chosen, pin_memory=self.numbers.is_cuda)
        self.numbers[: len(requests)].copy_(numbers, non_blocking=True)

    def _of(self, request: Any) -> LanguageState:
        if request not in self.readings:
            self.readings[request] = LanguageState(self.detector)
        return self.readings[request]
