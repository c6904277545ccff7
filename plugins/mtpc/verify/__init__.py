"""Reference verification rules: a draft and the target's probabilities become tokens distributed as the target's."""

from mtpc.verify.acceptance import Rates, expected_rates, overlap, rates_from_counts, rates_from_marginal
from mtpc.verify.block import verify_block
from mtpc.verify.greedy import verify_greedy
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.verdict import PADDING, Verdict

__all__ = [
    "PADDING",
    "Rates",
    "Verdict",
    "expected_rates",
    "overlap",
    "rates_from_counts",
    "rates_from_marginal",
    "verify_block",
    "verify_greedy",
    "verify_rejection",
]
