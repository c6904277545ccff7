"""The draft vocabulary of each request of a server: found from its prompt, and found again as its output goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector

FEW = 16  # tokens, of one text or of a batch, that are read faster one by one
LAST = 2048  # tokens at the end of a long prompt that are read: evidence halves every few tokens


class Reading:
    """What is known of a request: how many tokens were read, the evidence in them, and the draft vocabulary in use."""

    def __init__(self, detector: LanguageDetector) -> None:
        self.detector = detector
        self.tokens, self.evidence = 0, detector.begin()  # evidence: [N]
        self.vocabulary: int | None = None  # its number

    def read(self, tokens: Sequence[int]) -> None:
        """Take in tokens that follow those that were read."""
        read = self.detector.read_few if len(tokens) <= FEW else self.detector.read
        self.evidence = read(self.evidence, tokens[-LAST:])
        self.tokens += len(tokens)

    def choose(self) -> int:
        """The number of the draft vocabulary, as the evidence stands."""
        self.vocabulary = self.detector.decide(self.evidence, self.vocabulary)
        return self.vocabulary

    def follow(self, text: Sequence[int]) -> int:
        """The same, given the whole text so far, of which only what is new is read."""
        if self.tokens < len(text):
            self.read(text[self.tokens :])
        return self.choose()


def read_all(readings: Sequence[Reading], texts: Sequence[Sequence[int]]) -> None:
    """`Reading.read` of what follows in every text of a batch, at once."""
    if sum(map(len, texts)) <= FEW:
        for reading, text in zip(readings, texts, strict=True):
            reading.read(text)
        return
    lengths = np.array([len(text) for text in texts])
    texts = [text[-LAST:] for text in texts]
    tokens = np.array(list(zip_longest(*texts, fillvalue=-1)), np.int64).T
    evidence = np.stack([reading.evidence for reading in readings])
    there = np.arange(tokens.shape[1]) < np.minimum(lengths, LAST)[:, None]
    evidence = readings[0].detector.read(evidence, tokens, there)
    for reading, after, length in zip(readings, evidence, lengths.tolist(), strict=True):
        reading.evidence = after
        reading.tokens += length


def choose_all(readings: Sequence[Reading], tally: Tally | None) -> list[int]:
    """`Reading.choose` of a batch; tally: counts it, None: nobody watches."""
    before = [reading.vocabulary for reading in readings]
    chosen = [reading.choose() for reading in readings]
    if tally is not None:
        tally.chose(before, chosen)
    return chosen


class RequestLanguages:
    """The readings of requests whose whole texts are at hand, by their ids, on the host."""

    def __init__(self, detector: LanguageDetector) -> None:
        self.detector = detector
        self.readings: dict[str, Reading] = {}

    def choose(self, request: str, tokens: Sequence[int]) -> int:
        """The number of a request's draft vocabulary, given its prompt and output so far.

        Only what is new of them is read.  A text that is shorter than before is another request's, under an id that is
        used again.
        """
        reading = self.readings.get(request)
        if reading is None or reading.tokens > len(tokens):
            reading = self.readings[request] = Reading(self.detector)
        return reading.follow(tokens)

    def forget(self, requests: Iterable[str]) -> None:
        """Of requests that are finished; unknown ones are passed over."""
        for request in requests:
            self.readings.pop(request, None)
