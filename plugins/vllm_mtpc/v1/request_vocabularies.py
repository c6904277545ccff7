"""Which draft vocabulary each request of a batch uses, on the host, where tokens arrive a little later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import Reading, choose_all, read_all
from mtpc.vocabulary.vocabularies import DraftVocabularies

# Steps that vLLM has under way at a time: what was sampled so many steps ago is on the host already.
UNDER_WAY = 2
MOST_WAITING = 64  # steps whose tokens wait to be read


class Arrival(NamedTuple):
    """Sampled tokens on their way to the host: int [B, W], -1 where there is none."""

    readings: tuple[Reading | None, ...]  # of the requests; None: of one that is gone
    tokens: Tensor
    copied: torch.cuda.Event | None
    drafted: list[tuple[int | None, int]]  # from which vocabulary, and how many tokens; empty: nobody watches


class RequestVocabularies:
    """What is read of every request, as far as the host knows its text, and the draft vocabulary that follows from it.

    Sampled tokens are read when vocabularies are chosen, but a fixed number of steps after they were sent for, so
    nothing waits for the device, and all tensor-parallel ranks decide the same.  On a CPU none are left out.  tally:
    counts what became of drafts; None: nobody watches.
    """

    tally: Tally | None = None

    def __init__(self, detector: LanguageDetector, device: torch.device) -> None:
        self.detector = detector
        self.readings: dict[str, Reading] = {}
        self.known: dict[str, Any] = {}  # vLLM's requests by name, which may be used again
        self.arrivals: deque[Arrival] = deque()
        self.asynchronous = device.type != "cpu"
        self.unheard: list[tuple[Sequence[str], Tensor]] = []

    @classmethod
    def of(
        cls, vocabularies: DraftVocabularies | None, device: torch.device, watched: bool = False
    ) -> RequestVocabularies | None:
        """For vocabularies to choose from; None: there is no choice."""
        if vocabularies is None or vocabularies.detector is None:
            return None
        made = cls(vocabularies.detector, device)
        if watched:
            made.tally = Tally(vocabularies.names)
        return made

    def follow(
        self, sampled_token_ids: Tensor, requests: dict[str, Any], gpu_input_batch: Any, discard_request_mask: Tensor
    ) -> Tensor:
        """The numbers of the coming step, int64 [B]: `hear`, then `choose`."""
        self.hear(sampled_token_ids, requests, gpu_input_batch, discard_request_mask)
        return self.choose(gpu_input_batch.req_ids[: len(sampled_token_ids)])

    def hear(
        self,
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor | None = None,
    ) -> None:
        """Take in what vLLM's runner hands its proposer.

        sampled_token_ids: int [B, K + 1], -1 for a token that was rejected; it may be overwritten later.  requests: all
        that are not finished.  discard_request_mask: bool [at least B], whose prompt is not read yet; None: nobody's.
        """
        for requests_of, said_to in self.unheard:
            self.sampled(requests_of, said_to, [0] * len(requests_of))
        self.unheard.clear()
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        self.forget([name for name, request in self.known.items() if requests.get(name) is not request])
        for name in ids:
            if name not in self.known:
                self.known[name] = requests[name]
                self.begin(name, requests[name].prompt_token_ids or [])
        drafted = [] if self.tally is None else list(map(len, gpu_input_batch.spec_token_ids[: len(ids)]))
        said = (
            sampled_token_ids.clone()
            if discard_request_mask is None
            else sampled_token_ids.masked_fill(discard_request_mask[: len(ids), None], -1)
        )
        self.sampled(ids, said, drafted)

    def hear_later(self, requests: Sequence[str], tokens: Tensor) -> None:
        """What a step has said that had no drafts, to requests that are known: taken in by the next `hear`.

        tokens: int [B, 1], which nobody may overwrite.
        """
        self.unheard.append((requests, tokens))

    def begin(self, request: str, prompt: Sequence[int]) -> None:
        """A request whose text so far is known, in place of any that had its id."""
        self.readings[request] = Reading(self.detector)
        self.readings[request].read(prompt)

    def forget(self, requests: Iterable[str]) -> None:
        """Of requests that are finished or preempted."""
        for request in requests:
            self.readings.pop(request, None)
            self.known.pop(request, None)

    def sampled(self, requests: Sequence[str], tokens: Tensor, drafted: Sequence[int] = ()) -> None:
        """What the target has just said: int [B, W], -1 where there is no token.

        drafted: how many tokens were verified of each request; empty where nobody counts them.
        """
        copied, readings = None, tuple(map(self.readings.get, requests))
        vocabularies = (None if reading is None else reading.vocabulary for reading in readings)
        tokens = tokens.to("cpu", non_blocking=True)
        if self.asynchronous:
            copied = torch.cuda.Event()
            copied.record()
        self.arrivals.append(Arrival(readings, tokens, copied, list(zip(vocabularies, drafted, strict=False))))
        if len(self.arrivals) > MOST_WAITING:
            self.read_due()

    def read_due(self) -> None:
        """All that must have come, what several steps have said of a request at once."""
        heard: dict[Reading, list[int]] = {}
        while len(self.arrivals) > (UNDER_WAY if self.asynchronous else 0):
            arrival = self.arrivals.popleft()
            if arrival.copied is not None:
                arrival.copied.synchronize()
            texts = [[token for token in row if token >= 0] for row in arrival.tokens.tolist()]
            for reading, text in zip(arrival.readings, texts, strict=True):
                if reading is not None:
                    heard.setdefault(reading, []).extend(text)
            if self.tally is not None:
                self.tally.verified(
                    (number, drafted, len(text) - 1)
                    for (number, drafted), text in zip(arrival.drafted, texts, strict=True)
                    if number is not None and drafted and text
                )
        read_all(list(heard), list(heard.values()))

    def choose(self, requests: Sequence[str]) -> Tensor:
        """The number of each request's draft vocabulary, int64 [B], on the host."""
        self.read_due()
        chosen = choose_all([self.readings[request] for request in requests], self.tally)
        return torch.tensor(chosen, dtype=torch.int64, pin_memory=self.asynchronous)
