"""Verification rules: from draft tokens and target probabilities to tokens distributed as the target's.

Where an engine has a correct rule of its own, that rule is used and tested against the one here. Where it has none, the
rule here is used: `verify_rejection`, `verify_tree` and `mtpc.verify.filters` in SGLang, `verify_strings` in both.
"""

from mtpc.verify.greedy import verify_greedy
from mtpc.verify.output import PADDING, VerifyOutput
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.strings import verify_strings
from mtpc.verify.tree import TreeVerifyOutput, node_depths, verify_tree

__all__ = [
    "PADDING",
    "TreeVerifyOutput",
    "VerifyOutput",
    "node_depths",
    "verify_greedy",
    "verify_rejection",
    "verify_strings",
    "verify_tree",
]
