"""Language detection: which draft vocabulary fits a text, from its prompt and then from the generated tokens.

A token costs log(1 + its rank) nats in a ranking; a token outside of it costs as much as the last of the vocabulary.
The language of a text is the one in which it costs least.
This needs no probabilities, so rankings of any format can be compared.

A text that fits no ranking drafts from all tokens, where every token costs the same.
By Zipf's law a token of rank r has a frequency of about 1 / r, so log ranks of a text are spread evenly.
In the ranking of its own language a text therefore costs half of log(1 + V) per token.
Computing the whole output head takes longer than a draft vocabulary's rows; `SURCHARGE` accounts for that.
Where the union vocabulary covers most of such a text, it is used instead.
Accepted draft tokens are mostly frequent ones, and the union vocabulary is only a part of the head's rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.template import Template

HALF_LIFE = 32.0  # tokens after which evidence counts half: the output soon outweighs the prompt
START_MARGIN = 6.0  # nats by which all tokens must be better than the best language for a new request to use them
MARGIN = 8.0  # nats by which another choice must be better before a request changes
MEAN_COST = 0.5  # average cost of a token in the ranking of its own language, as a fraction of log(1 + V)
SURCHARGE = 0.06  # additional cost of a token for drafting from all tokens, as a fraction of log(1 + V)

# The union vocabulary is used while this fraction of a text's tokens at most is outside of it, give or take a little.
MAX_OUTSIDE, HYSTERESIS = 0.4, 0.05


class LanguageDetector:
    """Costs of every token in every ranking, by which the draft vocabulary of a request is chosen.

    The object holds no state of requests.  A request's evidence is a vector float64 [N] of decayed costs: one for each
    language, one for the union vocabulary if there is one, and one for all tokens.  Start with `begin`, update it with
    `read` or `read_few` for new tokens, and call `decide`.

    Attributes:
        languages: Names of the rankings, in the order of the evidence.
        union: Number of the union vocabulary; None: there is none.  Its evidence counts tokens outside of it.
        everything: Number of the vocabulary of all tokens, the last one.
        template: The chat template, whose tokens are skipped.
        decay: Factor on earlier evidence for each token that is read.
        margin: Nats by which another choice must be better before a request changes.
        all_tokens_cost: Cost of a token in the vocabulary of all tokens, nats.
        costs: Costs of all tokens, float32 [V + 1, N]; the last row is for ids outside the vocabulary.
    """

    def __init__(
        self,
        rankings: Rankings,
        template: Template | None = None,
        half_life: float = HALF_LIFE,
        margin: float = MARGIN,
        surcharge: float = SURCHARGE,
        union_tokens: np.ndarray | None = None,
    ) -> None:
        """Compute the costs of all tokens.

        Args:
            rankings: Rankings of the target's vocabulary.
            template: Chat template of the target, whose tokens are skipped; None: all tokens count.
            half_life: Tokens after which evidence counts half.
            margin: Nats by which another choice must be better before a request changes.
            surcharge: Additional cost of a token in the vocabulary of all tokens, as a fraction of log(1 + V).
            union_tokens: Tokens of the union vocabulary, int64 [R], if requests may draft from it.
        """
        self.languages = tuple(rankings.languages)
        self.union = None if union_tokens is None else len(self.languages)
        self.everything = len(self.languages) + (union_tokens is not None)
        self.template = template or Template()
        self.decay, self.margin = 0.5 ** (1 / half_life), margin
        self.vocab_size = rankings.vocab_size
        most = math.log1p(self.vocab_size)
        # The last row is for ids outside the vocabulary, which an engine may accept.
        costs = np.full((self.everything + 1, self.vocab_size + 1), most, np.float32)
        for row, ranking in zip(costs, rankings.languages.values(), strict=False):
            tokens = np.array(ranking.tokens, dtype=np.int64)
            # All tokens of an unordered set cost the average of a ranking.
            row[tokens] = np.log1p(np.arange(len(tokens))) if ranking.ranked else MEAN_COST * most
        self.all_tokens_cost = (MEAN_COST + surcharge) * most
        costs[self.everything, : self.vocab_size] = self.all_tokens_cost
        if union_tokens is not None:
            costs[self.union] = 1.0
            costs[self.union, union_tokens] = 0.0
        self.costs = np.ascontiguousarray(costs.T)  # [V + 1, N]

    def begin(self) -> np.ndarray:
        """Return the evidence before any token is read, float64 [N]."""
        return np.zeros(self.costs.shape[1])

    def read(
        self, evidence: np.ndarray, tokens: np.ndarray | Sequence[int], valid: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the evidence after reading tokens; each token that is read decays all before it.

        Args:
            evidence: Evidence so far, float64 [..., N].
            tokens: Tokens of one text or of a batch, int64 [..., T].
            valid: Which tokens count, bool [..., T]; None: all.

        Returns:
            Evidence, float64 [..., N].
        """
        tokens = np.asarray(tokens, dtype=np.int64)
        read = self.template.content_mask(tokens) if valid is None else self.template.content_mask(tokens) & valid
        rows = np.where((tokens >= 0) & (tokens < self.vocab_size), tokens, self.vocab_size)
        from_each = read[..., ::-1].cumsum(-1)[..., ::-1]  # tokens read from each position on
        ages = np.where(read, self.decay ** (from_each - 1.0), 0.0)
        new = (self.costs[rows] * ages[..., None]).sum(-2)
        after: np.ndarray = evidence * self.decay ** read.sum(-1, keepdims=True) + new
        return after

    def read_few(self, evidence: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """Return `read` of one short text; for a few tokens this is faster than arrays."""
        for token, is_content in zip(tokens, self.template.content_mask_of_few(tokens), strict=True):
            if is_content:
                evidence = evidence * self.decay
                evidence += self.costs[token if 0 <= token < self.vocab_size else self.vocab_size]
        return evidence

    def decide(self, evidence: np.ndarray, current: int | None = None) -> int:
        """Choose a draft vocabulary, changing the present one only for a gain above the margin.

        A text starts in the language that fits it best, unless all tokens fit clearly better.

        Args:
            evidence: Evidence of a request, float64 [N].
            current: Number of the vocabulary in use; None: the request is new.

        Returns:
            The number of a language, of the union vocabulary, or `everything`.
        """
        languages = len(self.languages)
        nats = [*evidence[:languages].tolist(), float(evidence[self.everything])]
        best, margin, now = nats.index(min(nats)), self.margin, current
        if now is None:
            now, margin = nats.index(min(nats[:-1])), START_MARGIN
        now = min(now, languages)
        chosen = now if nats[now] - nats[best] < margin else best
        return chosen if chosen < languages else self._without_language(evidence, current)

    def _without_language(self, evidence: np.ndarray, current: int | None) -> int:
        """Choose between all tokens and the union vocabulary; the one in use is favored."""
        if self.union is None:
            return self.everything
        most = MAX_OUTSIDE + (HYSTERESIS if current == self.union else -HYSTERESIS)
        tokens = evidence[self.everything] / self.all_tokens_cost
        return self.union if evidence[self.union] < most * tokens else self.everything
