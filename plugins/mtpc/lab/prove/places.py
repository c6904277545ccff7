"""Every token of sampled texts under what the baseline states after the text before it.

The tokens of a distribution lie one after the other between 0 and 1, the most probable first, each on a part as long
as it is probable.  A point at random on the part of the token that was said is then uniform between 0 and 1, whatever
was said before, if it was sampled from that distribution: so are all points of all places together, independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import chi2

from mtpc.lab.prove.ask import Said
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.dialects import Stated
from mtpc.lab.prove.found import SMALLEST, Found
from mtpc.lab.prove.plan import Sampling
from mtpc.lab.prove.stated import Left, left
from mtpc.lab.statistics.chi_square import chi_square

AT_PLACES = "tokens by place"
ALL, TOGETHER = "every token", "all samplings"
PARTS = 16  # equal ones, of 0 to 1, that points are counted in, where there are enough of them
SIDES = 4  # parts of each of two points
OUTSIDE = 1e-3  # of all tokens may lie outside of what top-k and top-p leave, because servers round otherwise


class Points(NamedTuple):
    """points: of each text and place, float64 [texts, places]; NaN where the baseline does not say enough.

    outside: the tokens that could not be sampled.
    """

    sampling: Sampling
    points: np.ndarray
    outside: int


def points_of(said: Said, sampling: Sampling, baseline: Client) -> Points:
    """Of the whole texts of a sampling, those of one request one after the other."""
    # Noise of its own: a token that is nearly certain lies where the noise says, in all samplings alike.
    noise = np.random.default_rng([said.plan.seed, said.plan.samplings.index(sampling)])
    rows, outside = [], 0
    for series in (one for one in said.told if one.sampling == sampling):
        prompt = said.endings[series.prompt]
        stated = baseline.stated([prompt + text for text in series.texts], len(prompt))
        for text, places in zip(series.texts, stated, strict=True):
            said_at = zip(text, places, strict=True)
            row = [_point(token, place, sampling, baseline, float(noise.random())) for token, place in said_at]
            outside += row.count(None)
            rows.append([np.nan if point is None else point for point in row])
    return Points(sampling, np.array(rows), outside)


def _point(token: int, stated: Stated, sampling: Sampling, baseline: Client, noise: float) -> float | None:
    """Where the token lies; NaN where the baseline does not say enough, None outside of what could be sampled."""
    law = left(stated, sampling, baseline.dialect.in_turn)
    return float("nan") if law is None else point(token, law, noise)


def point(token: int, law: Left, noise: float) -> float | None:
    """A point of the token's part; tokens of which nothing is stated have the last part together."""
    if token in law.ids:
        index = law.ids.index(token)
        return min(1.0, float(law.probs[:index].sum() + noise * law.probs[index]))
    return 1 - noise * law.rest if law.rest else None


def looked_at(found: Sequence[Points]) -> list[Found]:
    """The tests of all samplings' points: of each, all together, by place, and two and two."""
    tests = [_uniform(ALL, str(one.sampling), one.points) for one in found]
    points = np.concatenate([one.points for one in found])
    tests.append(_uniform(ALL, TOGETHER, points))
    tests += [_uniform(AT_PLACES, f"{TOGETHER}, token {place}", at) for place, at in enumerate(points.T, 1)]
    tests.append(_independent("one token and the next", TOGETHER, points[:, :-1], points[:, 1:]))
    tests.append(_independent("texts at the same time", TOGETHER, points[0:-1:2], points[1::2]))
    return tests + [_outside(one) for one in found if one.sampling.top_k or one.sampling.top_p < 1]


def edges_of(points: int) -> np.ndarray:
    """The parts of 0 to 1 that so many points are counted in, float64 [parts + 1]; no points are too few for one.

    Equal ones, of which the last, the rarest tokens, is halved again and again: there misstated drafts are seen best.
    """
    parts = max(1, min(PARTS, int(points / SMALLEST)))
    halvings = int(np.log2(max(1.0, points / SMALLEST / parts)))
    rare = [1 - 0.5**i / parts for i in range(1, halvings + 1)]
    return np.array([*np.linspace(0, 1, parts + 1)[:-1], *rare, 1.0])


def _uniform(test: str, of: str, points: np.ndarray) -> Found:
    """Whether points are uniform."""
    known = points[np.isfinite(points)]
    edges = edges_of(len(known))
    if len(edges) <= 2:
        return Found(test=test, of=of, samples=len(known), cells=0, p=None)
    counts = dict(enumerate(np.histogram(known, edges)[0].tolist()))
    judged = chi_square(counts, dict(enumerate(np.diff(edges).tolist())))
    return Found(test=test, of=of, samples=len(known), cells=judged.cells, p=judged.p, counts=tuple(counts.values()))


def _independent(test: str, of: str, first: np.ndarray, second: np.ndarray) -> Found:
    """Pairs, counted in a square.

    The first ones need not be uniform: whether the second's distribution is known depends on the token before.
    """
    both = np.isfinite(first) & np.isfinite(second)
    counts = np.histogram2d(first[both], second[both], SIDES, ((0, 1), (0, 1)))[0]
    expected = np.outer(counts.sum(1), counts.sum(0)) / max(1, counts.sum())
    if expected.min() < SMALLEST:
        return Found(test=test, of=of, samples=int(both.sum()), cells=0, p=None)
    degrees = (SIDES - 1) ** 2
    p = float(chi2.sf(((counts - expected) ** 2 / expected).sum(), degrees))
    return Found(test=test, of=of, samples=int(both.sum()), cells=degrees + 1, p=p)


def _outside(found: Points) -> Found:
    """More tokens than rounding explains that top-k or top-p leave no chance."""
    tokens = int(np.isfinite(found.points).sum()) + found.outside
    means = torch.tensor([found.outside, tokens * OUTSIDE], dtype=torch.float64)
    p = float(torch.special.gammainc(*means)) if found.outside else 1.0
    return Found(test="outside of top-k and top-p", of=str(found.sampling), samples=tokens, cells=1, p=p)
