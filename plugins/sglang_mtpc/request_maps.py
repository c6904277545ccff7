"""Which draft vocabulary each request of a batch uses, from the tokens that SGLang's scheduler knows of it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import RequestLanguages


class Text(Sequence[int]):
    """A request's prompt and output, one after the other, without a copy of what is not read."""

    def __init__(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.prompt, self.output = prompt, output

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def __getitem__(self, place: Any) -> Any:
        """One token, or a list of those from a place on."""
        if not isinstance(place, slice):
            return self.output[place - len(self.prompt)] if place >= len(self.prompt) else self.prompt[place]
        start = place.start or 0
        return [*self.prompt[start:], *self.output[max(0, start - len(self.prompt)) :]]


class RequestMaps:
    """The maps of a batch, on the device, in memory that never moves: a CUDA graph may read it.

    Where steps overlap, the scheduler knows of what was said a step ago: nothing waits for the device, and all
    tensor-parallel ranks decide the same.
    """

    def __init__(self, detector: LanguageDetector, requests: int, device: torch.device) -> None:
        self.languages = RequestLanguages(detector)
        self.maps = torch.zeros(requests, dtype=torch.int64, device=device)

    def choose(self, requests: Sequence[Any]) -> None:
        """Write the number of each request's map; requests: SGLang's ``Req`` of the rows of the batch."""
        chosen = [self._of(request) for request in requests]
        on_host = torch.tensor(chosen, dtype=torch.int64, pin_memory=self.maps.device.type == "cuda")
        self.maps[: len(chosen)].copy_(on_host, non_blocking=True)

    def _of(self, request: Any) -> int:
        if request.rid not in self.languages.readings:
            weakref.finalize(request, self.languages.forget, [request.rid])  # however it ends
        return self.languages.choose(request.rid, Text(request.origin_input_ids, request.output_ids))
