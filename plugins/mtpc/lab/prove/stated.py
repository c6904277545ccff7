"""What a sampling leaves of the probabilities that a baseline states of the next token."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mtpc.lab.prove.dialects import Stated, Text
from mtpc.lab.prove.plan import Sampling

UNKNOWN = 1e-4  # of all: by so much what the tokens of which nothing is stated have together may be off
EVEN = 0.02  # top-k parts tokens whose log-probabilities are as near as this as rounding will have it
EDGE = 0.002  # and top-p where the sum is as near to it


class Left(NamedTuple):
    """Tokens and their probabilities, float64, the first first; rest is that of all others together."""

    ids: Text
    probs: np.ndarray
    rest: float


def left(stated: Stated, sampling: Sampling, in_turn: bool) -> Left | None:
    """The distribution that a token is sampled from; None where what is stated, of some tokens alone, does not say.

    in_turn: whether top-p is judged on what top-k has left, or on all.  None as well where top-k or top-p part tokens
    that are nearly as probable as each other: two servers that round otherwise part them otherwise.
    """
    logs, t = np.array(stated.logprobs), sampling.temperature
    missing = max(0.0, 1.0 - float(np.exp(logs).sum()))
    weights = np.exp((logs - logs[0]) / t)
    kept = min(sampling.top_k or len(logs), len(logs))
    cut = bool(sampling.top_k)
    if kept < len(logs) and logs[kept - 1] - logs[kept] < EVEN:
        return None
    beyond, unsure = _beyond(logs, missing, t)
    total = float(weights.sum()) + beyond
    if sampling.top_p < 1:
        of_kept = cut and in_turn
        if not of_kept and unsure > EDGE / 2 * total:
            return None
        mass = float(weights[:kept].sum()) if of_kept else total
        before = (np.cumsum(weights[:kept]) - weights[:kept]) / mass
        reached = cut or float(weights[:kept].sum()) / mass >= sampling.top_p + EDGE
        if not reached or np.abs(before[1:] - sampling.top_p).min(initial=1.0) < EDGE:
            return None
        kept, cut = int((before < sampling.top_p).sum()), True
    elif not cut and unsure > UNKNOWN * total:
        return None
    probs = weights[:kept] / (weights[:kept].sum() if cut else total)
    return Left(stated.ids[:kept], probs, 0.0 if cut else max(0.0, 1.0 - float(probs.sum())))


def _beyond(logs: np.ndarray, missing: float, temperature: float) -> tuple[float, float]:
    """The weight of all tokens of which nothing is stated, over that of the first, and by how much it may be off.

    A token's is its probability to the power of 1 / T.  Each is less probable than the last one that is stated: for
    T < 1 together they weigh ``missing`` times that one's probability to the power of 1 / T - 1 at most.
    """
    if temperature == 1 or missing < UNKNOWN / 100:
        return missing / float(np.exp(logs[0])), 0.0
    if temperature > 1:
        return 0.0, float("inf")
    most = missing * float(np.exp(logs[-1])) ** (1 / temperature - 1) / float(np.exp(logs[0])) ** (1 / temperature)
    return most / 2, most / 2
