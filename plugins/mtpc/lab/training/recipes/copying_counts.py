"""How often a text goes on as it went on before, by the number of tokens that match: what a `CopyTable` holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mtpc.prompt_lookup.match import REACH, History


def count_continuations(texts: Iterable[tuple[list[int], int]], longest: int) -> np.ndarray:
    """Tokens that were copied and all tokens, int64 [longest + 1, 2], by the length of the match before them.

    texts: tokens, and the first of them that counts; at each from there on the longest match is looked up, as a drafter
    would, and the token compared with the one that would have been copied.
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
    """By the length of the match, from 1 on, and never falling: a longer match is no worse.

    counts: see `count_continuations`.  One copied and one other token are added to each, so no chance is 0 or 1.  The isotonic
    regression of what was counted: the largest, over where a stretch of lengths begins, of the smallest mean, over
    where it ends.
    """
    copied, times = (counts[1:] + np.array([1, 2])).T
    sums = [np.concatenate([[0], np.cumsum(of)]) for of in (copied, times)]
    first, last = np.triu_indices(len(times))
    means = np.full((len(times), len(times)), np.inf)
    means[first, last] = (sums[0][last + 1] - sums[0][first]) / (sums[1][last + 1] - sums[1][first])
    # Of row i, the smallest mean of a stretch from i that reaches k; then the largest over all i up to k.
    smallest = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    fitted = [smallest[: length + 1, length].max() for length in range(len(times))]
    return [round(float(chance), 4) for chance in fitted]
