"""How far a draft that copies goes on."""

from __future__ import annotations

import numpy as np

COST = 0.05  # of verifying one token more, in steps of the target


def worthwhile(chances: np.ndarray, drafts: int, cost: float = COST) -> int:
    """How many tokens after a draft are worth verifying, where the draft and they are all copied.

    chances: [m], r_1..r_m, of which the first ``drafts`` are in the draft already.  With a draft of k tokens a step
    says 1 + P_1 + ... + P_k tokens in expectation, P_i = r_1 ... r_i, and takes 1 + cost k steps without one: a token
    more is worth it as long as it says more than the step does in the time that it costs.
    """
    reached = np.cumprod(chances.astype(np.float64))
    tokens, time, count = 1.0 + reached[:drafts].sum(), 1.0 + cost * drafts, drafts
    while count < len(reached) and reached[count] * time > cost * tokens:
        tokens, time, count = tokens + reached[count], time + cost, count + 1
    return count - drafts
