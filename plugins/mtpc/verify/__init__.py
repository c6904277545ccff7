"""Reference verification rules: a draft and the target's probabilities become tokens distributed as the target's.

The reference, whether or not a part of this project calls it: where an engine's own rule is correct, that is used and
held to the one here (`verify_greedy`, `verify_rejection`); where it has none, the one here is used (`verify_tree`,
`mtpc.verify.filters`).
"""

from mtpc.verify.acceptance import Rates, rates_from_counts, rates_from_marginal
from mtpc.verify.greedy import verify_greedy
from mtpc.verify.output import PADDING, VerifyOutput
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.tree import TreeVerifyOutput, node_depths, verify_tree, verify_tree_greedy

__all__ = [
    "PADDING",
    "Rates",
    "TreeVerifyOutput",
    "VerifyOutput",
    "node_depths",
    "rates_from_counts",
    "rates_from_marginal",
    "verify_greedy",
    "verify_rejection",
    "verify_tree",
    "verify_tree_greedy",
]
