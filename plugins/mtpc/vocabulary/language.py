"""Which draft vocabulary suits a text best: from its prompt, and then from what is generated.

A token costs log(1 + its rank) in a ranking, and a token outside of it as much as the last of the vocabulary: what it
takes, in nats, to say where in the list it stands.  The language of a text is the one in which it costs least.  No
probabilities are needed, so the rankings of any format can be compared.

Where no ranking suits, all tokens are drafted from.  There every token costs the same.  By Zipf's law a token of rank r
is as frequent as 1 / r, so the logarithms of the ranks of a text are spread evenly up to that of the vocabulary: in the
ranking of its own language a text costs half of log(1 + V) a token.  Computing the whole output head costs more time
than the rows of a draft vocabulary; for that all tokens are charged `SURCHARGE`.  Where all languages together hold
most of what such a text says, they are drafted from instead: what is drafted rightly is mostly frequent, and these are
a part of the head's rows.
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
OUTSIDE, EITHER = 0.4, 0.05  # of a text's tokens that may be in no language's vocabulary, and by how much it stays


class LanguageDetector:
    """Costs of every token in every ranking, and last among all tokens; a request's evidence is a vector of as many, N.

    languages: the names of the rankings, in the order of the evidence.  everything: the last number.  template: its
    tokens are not read.  together: int64 [R], the tokens of all languages' draft vocabularies, where these may be
    drafted from as well; then that is the number after the languages, and its evidence says how many tokens are none of
    them.
    """

    def __init__(
        self,
        rankings: Rankings,
        template: Template | None = None,
        half_life: float = HALF_LIFE,
        margin: float = MARGIN,
        surcharge: float = SURCHARGE,
        together: np.ndarray | None = None,
    ) -> None:
        self.languages = tuple(rankings.languages)
        self.together = None if together is None else len(self.languages)
        self.everything = len(self.languages) + (together is not None)
        self.template = template or Template()
        self.decay, self.margin = 0.5 ** (1 / half_life), margin
        self.vocab_size = rankings.vocab_size
        most = math.log1p(self.vocab_size)
        # The last row is for what is no token of the vocabulary: an engine may let it pass.
        costs = np.full((self.everything + 1, self.vocab_size + 1), most, np.float32)
        for row, ranking in zip(costs, rankings.languages.values(), strict=False):
            tokens = np.array(ranking.tokens, dtype=np.int64)
            # The tokens of an unordered set cost the same, what they would cost on average in a ranking.
            row[tokens] = np.log1p(np.arange(len(tokens))) if ranking.ranked else OWN * most
        self.each = (OWN + surcharge) * most  # what a token costs among all tokens
        costs[self.everything, : self.vocab_size] = self.each
        if together is not None:
            costs[self.together] = 1.0
            costs[self.together, together] = 0.0
        self.costs = np.ascontiguousarray(costs.T)  # [V + 1, N]

    def begin(self) -> np.ndarray:
        """The evidence before anything is read: float64 [N]."""
        return np.zeros(self.costs.shape[1])

    def read(
        self, evidence: np.ndarray, tokens: np.ndarray | Sequence[int], there: np.ndarray | None = None
    ) -> np.ndarray:
        """The evidence after tokens: float64 [..., N]; each token read makes all before it count a little less.

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
        languages = len(self.languages)
        nats = [*evidence[:languages].tolist(), float(evidence[self.everything])]
        best, margin, now = nats.index(min(nats)), self.margin, current
        if now is None:
            now, margin = nats.index(min(nats[:-1])), BEGINS
        now = min(now, languages)
        chosen = now if nats[now] - nats[best] < margin else best
        return chosen if chosen < languages else self._of_no_language(evidence, current)

    def _of_no_language(self, evidence: np.ndarray, current: int | None) -> int:
        """`everything`, or all languages together, which a text goes on with for a little more than it begins with."""
        if self.together is None:
            return self.everything
        most = OUTSIDE + (EITHER if current == self.together else -EITHER)
        tokens = evidence[self.everything] / self.each
        return self.together if evidence[self.together] < most * tokens else self.everything
