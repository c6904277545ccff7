"""Which draft vocabulary suits a text best: from its prompt, and then from what is generated.

A token costs log(1 + its rank) in a ranking, and a token outside of it as much as the last of the vocabulary: what it
takes, in nats, to say where in the list it stands.  The language of a text is the one in which it costs least.  No
probabilities are needed, so the rankings of any format can be compared.

Where no ranking suits, all tokens are drafted from.  There every token costs the same.  By Zipf's law a token of rank r
is as frequent as 1 / r, so the logarithms of the ranks of a text are spread evenly up to that of the vocabulary: in the
ranking of its own language a text costs half of log(1 + V) a token.  Computing the whole output head costs more time
than the rows of a draft vocabulary; for that all tokens are charged `SURCHARGE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.template import Template

HALF_LIFE = 32.0  # tokens after which what was read counts half: the output soon outweighs the prompt
BEGINS = 6.0  # nats that all tokens must be better by than the best language, for a text to begin with them
MARGIN = 8.0  # nats that another choice must be better by, before a request changes over
OWN = 0.5  # of log(1 + V): what a token costs in the ranking of its own language, on average
SURCHARGE = 0.06  # of log(1 + V), a token, for drafting from all tokens


class LanguageDetector:
    """Costs of every token in every ranking, and last among all tokens; a request's evidence is a vector of so many.

    languages: the names of the rankings, in the order of the evidence; `everything` is the number after them.
    template: its tokens are not read.
    """

    def __init__(
        self,
        rankings: Rankings,
        template: Template | None = None,
        half_life: float = HALF_LIFE,
        margin: float = MARGIN,
        surcharge: float = SURCHARGE,
    ) -> None:
        self.languages = tuple(rankings.languages)
        self.everything = len(self.languages)
        self.template = template or Template()
        self.decay, self.margin = 0.5 ** (1 / half_life), margin
        self.vocab_size = rankings.vocab_size
        most = math.log1p(self.vocab_size)
        # The last row is for what is no token of the vocabulary: an engine may let it pass.
        costs = np.full((len(self.languages) + 1, self.vocab_size + 1), most, np.float32)
        for row, ranking in zip(costs, rankings.languages.values(), strict=False):
            tokens = np.array(ranking.tokens, dtype=np.int64)
            # The tokens of an unordered set cost the same, what they would cost on average in a ranking.
            row[tokens] = np.log1p(np.arange(len(tokens))) if ranking.ranked else OWN * most
        costs[self.everything, : self.vocab_size] = (OWN + surcharge) * most
        self.costs = np.ascontiguousarray(costs.T)  # [V + 1, L + 1]

    def begin(self) -> np.ndarray:
        """The evidence before anything is read: float64 [L + 1]."""
        return np.zeros(self.costs.shape[1])

    def read(
        self, evidence: np.ndarray, tokens: np.ndarray | Sequence[int], there: np.ndarray | None = None
    ) -> np.ndarray:
        """The evidence after tokens: float64 [..., L + 1]; each token read makes all before it count a little less.

        tokens: int64 [..., T], of one text or of many.  there: bool, the same shape, which of them are; None: all.
        """
        tokens = np.asarray(tokens, dtype=np.int64)
        read = self.template.said(tokens) if there is None else self.template.said(tokens) & there
        rows = np.where((tokens >= 0) & (tokens < self.vocab_size), tokens, self.vocab_size)
        from_each = read[..., ::-1].cumsum(-1)[..., ::-1]  # tokens that are read from each on
        ages = np.where(read, self.decay ** (from_each - 1.0), 0.0)
        new = (self.costs[rows] * ages[..., None]).sum(-2)
        after: np.ndarray = evidence * self.decay ** read.sum(-1, keepdims=True) + new
        return after

    def read_few(self, evidence: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """`read` of so few tokens of one text that arrays of them take longer than they do."""
        for token, said in zip(tokens, self.template.said_of_few(tokens), strict=True):
            if said:
                evidence = evidence * self.decay
                evidence += self.costs[token if 0 <= token < self.vocab_size else self.vocab_size]
        return evidence

    def decide(self, evidence: np.ndarray, current: int | None = None) -> int:
        """The number of the language, or `everything`, given the one in use: a change must be worth the margin.

        A text begins in the language that suits it best, unless all tokens suit it clearly better.
        """
        best, margin = int(evidence.argmin()), self.margin
        if current is None:
            current, margin = int(evidence[: self.everything].argmin()), BEGINS
        return current if evidence[current] - evidence[best] < margin else best
