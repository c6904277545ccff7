"""Probability that prompt lookup proposes the right token, by length of the match: the content of a `CopyTable`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mtpc.prompt_lookup.match import REACH, History


def count_continuations(texts: Iterable[tuple[list[int], int]], longest: int) -> np.ndarray:
    """Count how often a text continues as after the previous match of its last tokens.

    At each counted position the longest match is looked up as in drafting. The next token is compared with the token
    that would have been copied.

    Args:
        texts: Token ids of each text, and the position of the first token that counts.
        longest: Longest match that is counted separately, in tokens.

    Returns:
        Copied tokens and all tokens by length of the match, int64 [longest + 1, 2].
    """
    counts = np.zeros((longest + 1, 2), dtype=np.int64)
    for tokens, start in texts:
        history = History(tokens[:start], at_once=REACH)
        for token in tokens[start:]:
            match = history.longest_match(longest)
            copied = match.length > 0 and history.continuation(match, 1) == [token]
            counts[match.length] += (copied, 1)
            history.append([token])
    return counts


def copy_probabilities(counts: np.ndarray) -> list[float]:
    """Return the probability that a copied token is right, by length of the match from 1 on.

    The estimate is the isotonic regression of the counts, so it never falls with the length. It is computed by the
    max-min formula over ranges of lengths. Two tokens, one of them copied, are added to each count, so that no
    probability is 0 or 1.

    Args:
        counts: Counts as `count_continuations` returns them.

    Returns:
        Probabilities of matches of 1, 2, ... tokens, rounded to four digits.
    """
    copied, times = (counts[1:] + np.array([1, 2])).T
    sums = [np.concatenate([[0], np.cumsum(column)]) for column in (copied, times)]
    first, last = np.triu_indices(len(times))
    means = np.full((len(times), len(times)), np.inf)
    means[first, last] = (sums[0][last + 1] - sums[0][first]) / (sums[1][last + 1] - sums[1][first])
    # Row i: the smallest mean of a range from i that includes k. Then the largest over all i up to k.
    smallest = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    fitted = [smallest[: length + 1, length].max() for length in range(len(times))]
    return [round(float(probability), 4) for probability in fitted]
