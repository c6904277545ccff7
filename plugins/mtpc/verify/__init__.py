"""Reference verification rules: from draft tokens and target probabilities to tokens distributed as the target's.

Where an engine has a correct rule of its own, that rule is used and tested against the one here (`verify_greedy`,
`verify_rejection`). Where it has none, the rule here is used (`verify_strings`, `verify_tree`, `mtpc.verify.filters`).
"""

from mtpc.verify.acceptance import Rates, rates_from_counts, rates_from_marginal
from mtpc.verify.greedy import verify_greedy
from mtpc.verify.output import PADDING, VerifyOutput
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.strings import verify_strings
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
    "verify_strings",
    "verify_tree",
    "verify_tree_greedy",
]
