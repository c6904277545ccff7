"""Expected acceptance of the verification rules for a drafter with another vocabulary, on toy models.

    python -m benchmarks.heterogeneous_rules

The first table is table 3 of arXiv:2502.05202, in the same order. It is computed exactly for random models with fixed
seeds. Columns are shares of the target's tokens that the drafter has; acceptance is relative to algorithm 1, which uses
the union of the vocabularies. The second table is for a drafter over letters. The third one counts the decompositions
of a token, which are the terms of psi(t) (appendix C).

In the language of both models letters are independent; the models differ by noise. The figures compare the rules on the
same two models. They do not predict the acceptance of real models.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from rich.console import Console

from mtpc.lab.table import Table
from mtpc.vocabulary.token_bytes import TokenBytes
from mtpc.vocabulary.token_trie import decompositions, token_trie
from tests.oracles.heterogeneous import Drafter, exact_match_rate, on_intersection, psi, rejection_rate

LETTERS = {"a": 0.5, "b": 0.3, "c": 0.2}
LONGEST, LONGER = 4, 20  # letters of the longest token; tokens of more than one letter in each vocabulary
SHARES = (0.25, 0.5, 0.75, 1.0)
BOOST = 2.5  # factor on a token's weight per letter, so that texts prefer long tokens
COUNTED = 10_000  # tokens of the text from which stop probabilities are counted


class ToyPair(NamedTuple):
    """The next-token distribution of a target, and a drafter."""

    target: Mapping[str, float]
    drafter: Drafter


def make_pair(share: float, noise: float, seed: int) -> ToyPair:
    """Draw two vocabularies that share a fraction of their longer tokens, and models over them."""
    generator = np.random.default_rng([seed, round(100 * share)])
    longer = ["".join(text) for size in range(2, LONGEST + 1) for text in product(LETTERS, repeat=size)]
    generator.shuffle(longer)
    common, rest = longer[: round(share * LONGER)], longer[round(share * LONGER) :]
    own = LONGER - len(common)
    target, draft = ([*LETTERS, *common, *rest[start : start + own]] for start in (0, own))
    return ToyPair(_distribution(target, noise, seed, "target"), _drafter(draft, noise, seed))


def _drafter(vocabulary: Sequence[str], noise: float, seed: int) -> Drafter:
    return lambda text: _distribution(vocabulary, noise, seed, text)


def _distribution(vocabulary: Sequence[str], noise: float, seed: int, text: str) -> dict[str, float]:
    """Return a distribution by the letters' probabilities, with noise that is a function of the seed and the text."""
    logs = [sum(np.log(BOOST * LETTERS[letter]) for letter in token) for token in vocabulary]
    weights = np.exp(logs + noise * np.random.default_rng([seed, *text.encode()]).normal(size=len(vocabulary)))
    return dict(zip(vocabulary, (weights / weights.sum()).tolist(), strict=True))


RULES: dict[str, Callable[[ToyPair], float]] = {  # table 3, in its order
    "Alg 1 (union)": lambda pair: rejection_rate(pair.target, pair.drafter("")),
    "Alg 2 (SLEM)": lambda pair: exact_match_rate(pair.target, psi(pair.drafter, [*pair.target])),
    "Alg 3 (SLRS)": lambda pair: rejection_rate(pair.target, psi(pair.drafter, [*pair.target])),
    "Alg 4 (TLI)": lambda pair: rejection_rate(pair.target, on_intersection(pair.drafter(""), [*pair.target])),
}


def by_trie(pair: ToyPair) -> dict[str, float]:
    """Compute q of the target's tokens under a drafter over letters; its stops are counted in texts of the target."""
    tokens = TokenBytes(tuple(token.encode() for token in pair.target), frozenset(), frozenset())
    counts = np.rint(COUNTED * np.array([*pair.target.values()]))
    trie = token_trie(tokens, counts, pauses=counts)

    def probs(text: bytes) -> np.ndarray:
        row = np.zeros(256)
        for letter, probability in pair.drafter(text.decode()).items():
            row[ord(letter)] = probability
        return row

    return {token: float(np.exp(trie.log_prob(i, probs))) for i, token in enumerate(pair.target)}


def acceptance(models: int, noise: float) -> Table:
    """Return table 3: mean acceptance of each rule, and relative to the union, by overlap."""
    pairs = {share: [make_pair(share, noise, seed) for seed in range(models)] for share in SHARES}
    means = {
        name: {share: np.mean([rule(pair) for pair in pairs[share]]) for share in SHARES}
        for name, rule in RULES.items()
    }
    union = means["Alg 1 (union)"]
    rows = [["Alg 5 (SD)", *["undefined"] * len(SHARES)]]
    rows += [
        [name, *(f"{mean[share]:.3f} ({mean[share] / union[share]:.2f}x)" for share in SHARES)]
        for name, mean in means.items()
    ]
    columns = ["method", *(f"{share:.0%} in common" for share in SHARES)]
    return Table("Expected acceptance (relative to the union)", columns, rows)


def acceptance_of_letters(models: int, noise: float) -> Table:
    """Return the acceptance of a drafter over letters, whose psi has one term per text, by psi and by q of the trie."""
    rates = []
    for seed in range(models):
        target = make_pair(0.0, noise, seed).target
        pair = ToyPair(target, _drafter([*LETTERS], noise, seed))
        candidate, walked = psi(pair.drafter, [*target]), by_trie(pair)
        rates.append(
            [exact_match_rate(target, candidate), rejection_rate(target, candidate), rejection_rate(target, walked)]
        )
    names = ["Alg 2 (SLEM)", "Alg 3 (SLRS), psi", "Alg 3 (SLRS), trie with counted stops"]
    means = np.mean(rates, 0)
    rows = [[name, f"{mean:.3f} ({mean / means[0]:.2f}x)"] for name, mean in zip(names, means, strict=True)]
    return Table("Expected acceptance of a drafter over letters (relative to SLEM)", ["method", "acceptance"], rows)


def terms(models: int) -> Table:
    """Return the number of decompositions of all possible tokens by length, and its bound (lemma 3.1)."""
    drafts = [{token.encode() for token in make_pair(0.5, 0.0, seed).drafter("")} for seed in range(models)]
    rows = []
    for size in range(1, LONGEST + 1):
        texts = ["".join(letters).encode() for letters in product(LETTERS, repeat=size)]
        counts = [decompositions(text, draft) for draft in drafts for text in texts]
        rows.append([str(size), f"{np.mean(counts):.2f}", str(max(counts)), str(2 ** (size - 1)), "1"])
    columns = ["letters", "mean", "most", "complete vocabulary", "drafter over letters"]
    return Table("Decompositions of a token", columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=30, help="average over this many pairs (default: %(default)s)")
    noise = "standard deviation of the noise in the models' log-probabilities (default: %(default)s)"
    parser.add_argument("--noise", type=float, default=0.5, help=noise)
    chosen = parser.parse_args(arguments)
    console = Console(width=120)
    for table in (
        acceptance(chosen.models, chosen.noise),
        acceptance_of_letters(chosen.models, chosen.noise),
        terms(chosen.models),
    ):
        console.print(table.to_markdown(), markup=False)


if __name__ == "__main__":
    main()
