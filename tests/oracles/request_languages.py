"""The draft vocabularies of several texts that grow, each found from its own tokens; nothing is done in batches."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import LanguageState


class RequestLanguages:
    """Language detection by the names of texts: `choose` in each step."""

    def __init__(self, detector: LanguageDetector) -> None:
        self.detector = detector
        self.readings: dict[str, LanguageState] = {}

    def choose(self, name: str, text: Sequence[int]) -> int:
        """The number of a text's draft vocabulary; what was read of it before is not read again."""
        reading = self.readings.setdefault(name, LanguageState(self.detector))
        reading.read(text[reading.tokens :])
        return reading.choose()
