"""The map that each request of a server drafts from: found from its prompt, and found again as its output goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mtpc.vocabulary.language import LanguageDetector


@dataclass
class Reading:
    """What is known of a request: the tokens that were read, the evidence in them, and the map in use."""

    tokens: int
    evidence: np.ndarray  # [L]
    map: int | None = None


class RequestLanguages:
    """The evidence of every request, by its id, on the host."""

    def __init__(self, detector: LanguageDetector) -> None:
        self.detector = detector
        self.readings: dict[str, Reading] = {}

    def choose(self, request: str, tokens: Sequence[int]) -> int:
        """The number of a request's map, given its prompt and output so far; only what is new of them is read.

        A text that is shorter than before is another request's, under an id that is used again.
        """
        reading = self.readings.get(request)
        if reading is None or reading.tokens > len(tokens):
            reading = self.readings[request] = Reading(0, self.detector.begin())
        if reading.map is None or reading.tokens < len(tokens):
            reading.evidence = self.detector.read(reading.evidence, tokens[reading.tokens :])
            reading.tokens = len(tokens)
            reading.map = self.detector.decide(reading.evidence, reading.map)
        return reading.map

    def forget(self, requests: Iterable[str]) -> None:
        """Of requests that are finished; unknown ones are passed over."""
        for request in requests:
            self.readings.pop(request, None)
