"""The distribution that a sampling setting draws from, by the log-probabilities that the baseline states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mtpc.lab.prove.engine_api import TokenIds, TopLogprobs
from mtpc.lab.prove.plan import SamplingSetting

MAX_ERROR = 1e-4  # largest error of the total probability of the tokens that are not stated
TIE = 0.02  # where log-probabilities differ by less, rounding may decide which token top-k keeps
EDGE = 0.002  # likewise where the cumulative probability is this close to top-p


class NextTokenDistribution(NamedTuple):
    """A distribution over the next token.

    Attributes:
        ids: Tokens whose probabilities are known, most probable first.
        probs: Their probabilities, float64 [len(ids)].
        remainder: Total probability of all other tokens.
    """

    ids: TokenIds
    probs: np.ndarray
    remainder: float


def sampling_distribution(
    top: TopLogprobs, sampling: SamplingSetting, top_p_after_top_k: bool
) -> NextTokenDistribution | None:
    """Apply temperature, top-k and top-p to the most probable tokens that the baseline states.

    Args:
        top: The most probable next tokens at temperature 1.
        sampling: Sampling parameters.
        top_p_after_top_k: Whether top-p applies to the tokens that top-k keeps, renormalized, or to all tokens.

    Returns:
        The distribution.  None where the stated tokens do not determine it, or where top-k or top-p separates tokens
        of nearly equal probability, which rounding may separate in another way.
    """
    logs, t = np.array(top.logprobs), sampling.temperature
    missing = max(0.0, 1.0 - float(np.exp(logs).sum()))
    weights = np.exp((logs - logs[0]) / t)
    kept = min(sampling.top_k or len(logs), len(logs))
    cut = bool(sampling.top_k)
    if kept < len(logs) and logs[kept - 1] - logs[kept] < TIE:
        return None
    unstated, error = _unstated_weight(logs, missing, t)
    total = float(weights.sum()) + unstated
    if sampling.top_p < 1:
        of_kept = cut and top_p_after_top_k
        if not of_kept and error > EDGE / 2 * total:
            return None
        mass = float(weights[:kept].sum()) if of_kept else total
        before = (np.cumsum(weights[:kept]) - weights[:kept]) / mass
        reached = cut or float(weights[:kept].sum()) / mass >= sampling.top_p + EDGE
        if not reached or np.abs(before[1:] - sampling.top_p).min(initial=1.0) < EDGE:
            return None
        kept, cut = int((before < sampling.top_p).sum()), True
    elif not cut and error > MAX_ERROR * total:
        return None
    probs = weights[:kept] / (weights[:kept].sum() if cut else total)
    return NextTokenDistribution(top.ids[:kept], probs, 0.0 if cut else max(0.0, 1.0 - float(probs.sum())))


def _unstated_weight(logs: np.ndarray, missing: float, temperature: float) -> tuple[float, float]:
    """Return the weight of all tokens that are not stated, relative to the first token, and the error of this weight.

    The weight of a token is its probability to the power of 1 / T.  Each of these tokens is less probable than the last
    stated one.  For T < 1 their total weight is at most ``missing`` times its probability to the power of 1 / T - 1.
    """
    if temperature == 1 or missing < MAX_ERROR / 100:
        return missing / float(np.exp(logs[0])), 0.0
    if temperature > 1:
        return 0.0, float("inf")
    most = missing * float(np.exp(logs[-1])) ** (1 / temperature - 1) / float(np.exp(logs[0])) ** (1 / temperature)
    return most / 2, most / 2
