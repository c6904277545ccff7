"""Tests every token of sampled outputs against the baseline's distribution at its position.

The probability integral transform, randomized for discrete outcomes, maps each token to a point between 0 and 1.  All
tokens are laid out from 0 to 1, most probable first, each on an interval as long as its probability.  The point is
drawn uniformly from the interval of the generated token.  If the token was sampled from that distribution, the point is
uniform whatever precedes it.  The points of all positions are then uniform and independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import chi2

from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import TopLogprobs
from mtpc.lab.prove.plan import SamplingSetting
from mtpc.lab.prove.recording import Recording
from mtpc.lab.prove.sampling_distribution import NextTokenDistribution, sampling_distribution
from mtpc.lab.prove.significance import MIN_EXPECTED, SignificanceTest
from mtpc.lab.statistics.chi_square import chi_square

BY_POSITION = "tokens by position"
EVERY_TOKEN, ALL_SAMPLINGS = "every token", "all samplings"
BINS = 16  # equal bins between 0 and 1, where there are enough points
PAIR_BINS = 4  # bins of each point of a pair
ALLOWED_OUTSIDE = 1e-3  # share of tokens outside of top-k and top-p that rounding explains


class TokenPoints(NamedTuple):
    """The transformed tokens of one sampling setting.

    Attributes:
        sampling: Sampling parameters.
        points: float64 [outputs, positions]; NaN where the baseline states too little.
        outside: Number of tokens that could not be sampled, outside of top-k or top-p.
    """

    sampling: SamplingSetting
    points: np.ndarray
    outside: int


def token_points(recording: Recording, sampling: SamplingSetting, baseline: Client) -> TokenPoints:
    """Transform all tokens of a setting's outputs; outputs of one request are adjacent."""
    # A generator for each setting: points of nearly certain tokens would otherwise be alike in all settings.
    noise = np.random.default_rng([recording.plan.seed, recording.plan.samplings.index(sampling)])
    rows, outside = [], 0
    for series in (one for one in recording.outputs if one.sampling == sampling):
        prompt = recording.endings[series.prompt]
        logprobs = baseline.top_logprobs([prompt + text for text in series.texts], len(prompt))
        for text, positions in zip(series.texts, logprobs, strict=True):
            tokens = zip(text, positions, strict=True)
            row = [_point(token, top, sampling, baseline, float(noise.random())) for token, top in tokens]
            outside += row.count(None)
            rows.append([np.nan if point is None else point for point in row])
    return TokenPoints(sampling, np.array(rows), outside)


def _point(token: int, top: TopLogprobs, sampling: SamplingSetting, baseline: Client, noise: float) -> float | None:
    """Transform a token; NaN where the baseline states too little, None outside of top-k or top-p."""
    distribution = sampling_distribution(top, sampling, baseline.api.top_p_after_top_k)
    return float("nan") if distribution is None else transform(token, distribution, noise)


def transform(token: int, distribution: NextTokenDistribution, noise: float) -> float | None:
    """Return the point of a token.

    Args:
        token: The token.
        distribution: The distribution at its position; tokens that it does not list share the last interval.
        noise: Uniform random number between 0 and 1.

    Returns:
        A point between 0 and 1; None where the token has probability 0.
    """
    if token in distribution.ids:
        index = distribution.ids.index(token)
        return min(1.0, float(distribution.probs[:index].sum() + noise * distribution.probs[index]))
    return 1 - noise * distribution.remainder if distribution.remainder else None


def uniformity_tests(found: Sequence[TokenPoints]) -> list[SignificanceTest]:
    """Return the tests of all points: for each setting, together, by position, in pairs, and outside of the filters.

    Args:
        found: Points of each sampling setting.
    """
    tests = [_uniform(EVERY_TOKEN, str(one.sampling), one.points) for one in found]
    points = np.concatenate([one.points for one in found])
    tests.append(_uniform(EVERY_TOKEN, ALL_SAMPLINGS, points))
    tests += [
        _uniform(BY_POSITION, f"{ALL_SAMPLINGS}, token {position}", at) for position, at in enumerate(points.T, 1)
    ]
    tests.append(_independent("consecutive tokens", ALL_SAMPLINGS, points[:, :-1], points[:, 1:]))
    tests.append(_independent("concurrent outputs", ALL_SAMPLINGS, points[0:-1:2], points[1::2]))
    return tests + [_outside(one) for one in found if one.sampling.top_k or one.sampling.top_p < 1]


def bin_edges(points: int) -> np.ndarray:
    """Return the edges of the bins between 0 and 1 for a number of points, float64 [bins + 1].

    The bins are equal, but the last one, with the rarest tokens, is halved repeatedly: misstated draft distributions
    are most visible there.  With too few points there is one bin.
    """
    bins = max(1, min(BINS, int(points / MIN_EXPECTED)))
    halvings = int(np.log2(max(1.0, points / MIN_EXPECTED / bins)))
    rare = [1 - 0.5**i / bins for i in range(1, halvings + 1)]
    return np.array([*np.linspace(0, 1, bins + 1)[:-1], *rare, 1.0])


def _uniform(test: str, of: str, points: np.ndarray) -> SignificanceTest:
    """Test that points are uniform."""
    known = points[np.isfinite(points)]
    edges = bin_edges(len(known))
    if len(edges) <= 2:
        return SignificanceTest(test=test, of=of, samples=len(known), cells=0, p=None)
    counts = dict(enumerate(np.histogram(known, edges)[0].tolist()))
    result = chi_square(counts, dict(enumerate(np.diff(edges).tolist())))
    return SignificanceTest(
        test=test, of=of, samples=len(known), cells=result.cells, p=result.p, counts=tuple(counts.values())
    )


def _independent(test: str, of: str, first: np.ndarray, second: np.ndarray) -> SignificanceTest:
    """Test that the points of pairs are independent, by their counts in a square of bins.

    The first points need not be uniform, because a pair is left out where the second distribution is not known, which
    depends on the first token.
    """
    both = np.isfinite(first) & np.isfinite(second)
    counts = np.histogram2d(first[both], second[both], PAIR_BINS, ((0, 1), (0, 1)))[0]
    expected = np.outer(counts.sum(1), counts.sum(0)) / max(1, counts.sum())
    if expected.min() < MIN_EXPECTED:
        return SignificanceTest(test=test, of=of, samples=int(both.sum()), cells=0, p=None)
    degrees = (PAIR_BINS - 1) ** 2
    p = float(chi2.sf(((counts - expected) ** 2 / expected).sum(), degrees))
    return SignificanceTest(test=test, of=of, samples=int(both.sum()), cells=degrees + 1, p=p)


def _outside(found: TokenPoints) -> SignificanceTest:
    """Test that no more tokens are outside of top-k and top-p than rounding explains."""
    tokens = int(np.isfinite(found.points).sum()) + found.outside
    means = torch.tensor([found.outside, tokens * ALLOWED_OUTSIDE], dtype=torch.float64)
    p = float(torch.special.gammainc(*means)) if found.outside else 1.0
    return SignificanceTest(test="outside of top-k and top-p", of=str(found.sampling), samples=tokens, cells=1, p=p)
