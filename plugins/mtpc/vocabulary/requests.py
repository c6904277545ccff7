"""The draft vocabulary of each request, detected from its prompt and again while output is generated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector

MAX_SCALAR_TOKENS = 16  # tokens of a text or a batch up to which a loop is faster than arrays
MAX_READ_TOKENS = 2048  # only the last tokens of a longer prompt are read: the evidence of earlier ones has decayed


class LanguageState:
    """Language detection of one request: `read` with new tokens, then `choose`.

    Attributes:
        detector: Costs of tokens by draft vocabulary.
        tokens: Number of tokens read so far.
        evidence: Evidence in them, float64 [N].
        vocabulary: Number of the draft vocabulary in use; None: none is chosen yet.

    Args:
        detector: Costs of tokens by draft vocabulary.
    """

    def __init__(self, detector: LanguageDetector) -> None:
        self.detector = detector
        self.tokens, self.evidence = 0, detector.begin()
        self.vocabulary: int | None = None

    def read(self, tokens: Sequence[int]) -> None:
        """Update the evidence with tokens that follow those already read."""
        read = self.detector.read_few if len(tokens) <= MAX_SCALAR_TOKENS else self.detector.read
        self.evidence = read(self.evidence, tokens[-MAX_READ_TOKENS:])
        self.tokens += len(tokens)

    def choose(self) -> int:
        """Return the number of the draft vocabulary that the evidence supports."""
        self.vocabulary = self.detector.decide(self.evidence, self.vocabulary)
        return self.vocabulary


def read_all(readings: Sequence[LanguageState], texts: Sequence[Sequence[int]]) -> None:
    """Update all requests of a batch at once; see `LanguageState.read`.

    Args:
        readings: State of each request.
        texts: New tokens of each request.
    """
    if sum(map(len, texts)) <= MAX_SCALAR_TOKENS:
        for reading, text in zip(readings, texts, strict=True):
            reading.read(text)
        return
    lengths = np.array([len(text) for text in texts])
    texts = [text[-MAX_READ_TOKENS:] for text in texts]
    tokens = np.array(list(zip_longest(*texts, fillvalue=-1)), np.int64).T
    evidence = np.stack([reading.evidence for reading in readings])
    valid = np.arange(tokens.shape[1]) < np.minimum(lengths, MAX_READ_TOKENS)[:, None]
    evidence = readings[0].detector.read(evidence, tokens, valid)
    for reading, after, length in zip(readings, evidence, lengths.tolist(), strict=True):
        reading.evidence = after
        reading.tokens += length


def choose_all(readings: Sequence[LanguageState], tally: Tally | None) -> list[int]:
    """Choose the draft vocabulary of each request of a batch.

    Args:
        readings: State of each request.
        tally: Counts the choices for metrics; None: metrics are off.

    Returns:
        The vocabulary number of each request.
    """
    before = [reading.vocabulary for reading in readings]
    chosen = [reading.choose() for reading in readings]
    if tally is not None:
        tally.count_choices(before, chosen)
    return chosen
