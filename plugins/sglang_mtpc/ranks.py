"""Tensor-parallel ranks draft the same: each from its own whole copy of the window, all from states of the first rank.

A reduction over ranks need not leave the same bits on all of them, and ranks that draft different tokens write keys and
values of different texts: of verification SGLang shares the verdicts alone.
"""

from __future__ import annotations

from sglang.srt.runtime_context import get_parallel
from torch import Tensor

from mtpc.target_head.rows import Ranks


def of_first_rank(states: Tensor) -> Tensor:
    """What the first rank has, of the same shape on all: [n, ...].

    It is gathered, as SGLang gathers logits, also in CUDA graphs.
    """
    gathered: Tensor = get_parallel().tp_group.all_gather(states.contiguous(), dim=0)
    return gathered[: len(states)]


def head_ranks() -> Ranks:
    """Those that the target's output head is shared out over."""
    parallel = get_parallel()
    return Ranks(parallel.tp_rank, parallel.tp_size, parallel.tp_group.all_gather)
