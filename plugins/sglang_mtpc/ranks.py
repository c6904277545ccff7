"""Tensor-parallel ranks draft the same: each from its own whole copy of the window, all from states of the first rank.

A reduction over ranks need not leave the same bits on all of them, and ranks that draft different tokens write keys and
values of different texts: of verification SGLang shares the verdicts alone.  So do ranks that have different drafters.
"""

from __future__ import annotations

from pathlib import Path

from sglang.srt.runtime_context import get_parallel, get_spec
from torch import Tensor

from mtpc.serving import ranks as alike
from mtpc.target_head.rows import Ranks
from sglang_mtpc.token_map import vocabulary_values


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


def check_ranks(folder: Path) -> None:
    """Whether all ranks draft with the same files; folder: of the drafter.

    Errors: `MTPCError`, see `mtpc.serving.ranks.check_ranks`.
    """
    group = get_parallel().tp_group
    if group.world_size > 1:
        alike.check_ranks(group.cpu_group, folder, vocabulary_values(get_spec().speculative_token_map))


def seconds_of_first_rank(seconds: float) -> float:
    """What the first rank has measured, on all of them."""
    group = get_parallel().tp_group
    return seconds if group.world_size == 1 else alike.of_first_rank(group.cpu_group, (seconds,))[0]
