"""Which ranking covers a text best: the language of a request, from its prompt and then from what is generated.

A token costs log(1 + its rank) in a ranking, and a token outside of it as much as the last of the vocabulary: what it
takes, in nats, to say where in the list it stands.  The language of a text is the one in which it costs least.  No
probabilities are needed, so the rankings of any format can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mtpc.vocabulary.ranking import Rankings

HALF_LIFE = 32.0  # tokens after which what was read counts half: the output soon outweighs the prompt
MARGIN = 4.0  # nats that another language must be better by, before a request changes over


class LanguageDetector:
    """Costs of every token in every ranking; a request's evidence is a vector of so many numbers, [L].

    languages: their names, in the order of the evidence.
    """

    def __init__(self, rankings: Rankings, half_life: float = HALF_LIFE, margin: float = MARGIN) -> None:
        self.languages = tuple(rankings.languages)
        self.decay, self.margin = 0.5 ** (1 / half_life), margin
        self.vocab_size = rankings.vocab_size
        # The last column is for what is no token of the vocabulary: an engine may let it pass.
        self.costs = np.full((len(self.languages), self.vocab_size + 1), math.log1p(self.vocab_size), np.float32)
        for row, ranking in zip(self.costs, rankings.languages.values(), strict=True):
            tokens = np.array(ranking.tokens, dtype=np.int64)
            # The tokens of an unordered set cost the same, what they would cost on average in a ranking.
            ranks = np.arange(len(tokens)) if ranking.ranked else np.full(len(tokens), len(tokens) / math.e)
            row[tokens] = np.log1p(ranks)

    def begin(self) -> np.ndarray:
        """The evidence before anything is read: float64 [L]."""
        return np.zeros(len(self.languages))

    def read(self, evidence: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """The evidence after tokens: float64 [L]; each token read makes all before it count a little less."""
        if not len(tokens):
            return evidence
        columns, ages = np.asarray(tokens), np.arange(len(tokens) - 1, -1, -1)
        columns = np.where((columns >= 0) & (columns < self.vocab_size), columns, self.vocab_size)
        new: np.ndarray = self.costs[:, columns] @ self.decay**ages
        return evidence * self.decay ** len(tokens) + new

    def decide(self, evidence: np.ndarray, current: int | None = None) -> int:
        """The number of the language, given the one in use: a change must be worth the margin."""
        best = int(evidence.argmin())
        if current is not None and evidence[current] - evidence[best] < self.margin:
            return current
        return best
