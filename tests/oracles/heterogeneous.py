"""Drafting with another vocabulary on toy vocabularies, by enumeration (arXiv:2502.05202).

A drafter writes texts in its own tokens.  psi(t) of theorem 3.2 is the probability that the target's tokens of such a
text begin with t.  It is the sum over all sequences of draft tokens that determine the first token and make it t.  The
rates of table 3 follow from psi and the drafter's distribution of one token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Distribution = Mapping[str, float]
Drafter = Callable[[str], Distribution]  # from the text so far to the next draft token


@dataclass(frozen=True)
class ToyDrafter:
    """Random distributions over a vocabulary of strings, others after each text; a function of the seed."""

    vocabulary: tuple[str, ...]
    seed: int

    def __call__(self, text: str) -> dict[str, float]:
        """The next token's distribution."""
        generator = np.random.default_rng([self.seed, *text.encode()])
        return dict(zip(self.vocabulary, generator.dirichlet(np.ones(len(self.vocabulary))).tolist(), strict=True))


def random_target(vocabulary: Sequence[str], seed: int) -> dict[str, float]:
    """A random distribution of the target's next token."""
    probs = np.random.default_rng([seed, 1]).dirichlet(np.ones(len(vocabulary)))
    return dict(zip(vocabulary, probs.tolist(), strict=True))


def random_vocabulary(size: int, longest: int, seed: int, alphabet: str = "ab") -> tuple[str, ...]:
    """The letters, and as many random longer strings as make up the size; sorted."""
    every = [*alphabet]
    longer: list[str] = []
    for _ in range(longest - 1):
        every = [text + letter for text in every for letter in alphabet]
        longer += every
    chosen = np.random.default_rng([seed, 2]).choice(longer, size - len(alphabet), replace=False)
    return tuple(sorted([*alphabet, *chosen.tolist()]))


def first_token(text: str, vocabulary: Sequence[str]) -> str:
    """Return the longest prefix of a text that is a token: the tokenization of arXiv:2502.05202, section 3."""
    return max((each for each in vocabulary if text.startswith(each)), key=len)


def psi(drafter: Drafter, target: Sequence[str]) -> dict[str, float]:
    """The distribution of algorithm 3's candidate (line 4), summed over all sequences of draft tokens.

    Its lookahead: the drafter stops as soon as no longer token of the target can be the first.
    """
    found = dict.fromkeys(target, 0.0)

    def extend(text: str, weight: float) -> None:
        if text and not any(len(each) > len(text) and each.startswith(text) for each in target):
            found[first_token(text, target)] += weight
            return
        for token, probability in drafter(text).items():
            extend(text + token, weight * probability)

    extend("", 1.0)
    return found


def exact_match_rate(target: Distribution, draft: Distribution) -> float:
    """Table 3, algorithm 2 (SLEM): both draw the same token."""
    return sum(target[token] * draft.get(token, 0.0) for token in target)


def rejection_rate(target: Distribution, draft: Distribution) -> float:
    """Table 3, algorithms 1, 3 and 4: the expected acceptance of rejection sampling (Leviathan et al. 2023)."""
    return sum(min(target[token], draft.get(token, 0.0)) for token in target)


def on_intersection(draft: Distribution, target: Sequence[str]) -> dict[str, float]:
    """Algorithm 4 (TLI): the drafter's distribution on the common tokens, renormalized; empty without one."""
    common = {token: probability for token, probability in draft.items() if token in target}
    return {token: probability / sum(common.values()) for token, probability in common.items()}


def rejection_output(
    target: Distribution, draft: Distribution, claimed: Distribution | None = None
) -> dict[str, float]:
    """The output of rejection sampling over the union of both vocabularies (algorithms 1, 3, 4), by enumeration.

    `claimed` is what the rule takes for the draft's distribution; a wrong one is the negative control.
    """
    claimed = draft if claimed is None else claimed
    union = sorted({*target, *draft})
    p, q, r = ({token: each.get(token, 0.0) for token in union} for each in (target, draft, claimed))
    excess = {token: max(p[token] - r[token], 0.0) for token in union}
    mass = sum(excess.values())
    accepted = {token: q[token] * min(1.0, p[token] / r[token]) if r[token] else 0.0 for token in union}
    rejected = 1.0 - sum(accepted.values())
    return {token: accepted[token] + (rejected * excess[token] / mass if mass else 0.0) for token in union}
