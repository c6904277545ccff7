"""Identical drafts on all tensor-parallel ranks.

Every rank has a full copy of the parallel part and drafts from the states of the first rank, because reductions may
differ by rounding between ranks.  A text part drafts on the first rank, which sends its drafts to the others.  SGLang
only shares the result of verification: ranks with different draft tokens, or different drafters, would write keys and
values of different tokens into their caches.
"""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from sglang.srt.runtime_context import get_parallel, get_spec
from torch import Tensor

from mtpc.serving import ranks as core_ranks
from mtpc.target_head.rows import Ranks
from sglang_mtpc.token_map import vocabulary_values


def of_first_rank(states: Tensor) -> Tensor:
    """Return the first rank's states on all ranks; works in CUDA graphs.

    Args:
        states: This rank's states, [n, ...], of one shape on all ranks.

    Returns:
        The first rank's states, [n, ...].
    """
    gathered: Tensor = get_parallel().tp_group.all_gather(states.contiguous(), dim=0)
    return gathered[: len(states)]


def tokens_of_first_rank(drafts: list[list[int]] | None) -> list[list[int]]:
    """Return the first rank's draft tokens on all ranks.

    Args:
        drafts: Draft tokens of each request; other ranks need not have any.
    """
    group, shared = get_parallel().tp_group, [drafts]
    if group.world_size > 1:
        dist.broadcast_object_list(shared, dist.get_global_rank(group.cpu_group, 0), group.cpu_group)
    assert shared[0] is not None
    return shared[0]


def probs_of_first_rank(probs: Tensor) -> Tensor:
    """Replace draft distributions, float32 [B, K, V], by those of the first rank, in place, and return them."""
    group = get_parallel().tp_group
    if group.world_size > 1 and probs.numel():
        group.broadcast(probs, src=0)
    return probs


def head_ranks() -> Ranks:
    """Return the ranks over which the target's output head is sharded."""
    parallel = get_parallel()
    return Ranks(parallel.tp_rank, parallel.tp_size, parallel.tp_group.all_gather)


def check_ranks(folder: Path) -> None:
    """Check that all ranks have the same drafter files.

    Args:
        folder: Directory of the drafter checkpoint.

    Raises:
        MTPCError: See `mtpc.serving.ranks.check_ranks`.
    """
    group = get_parallel().tp_group
    if group.world_size > 1:
        core_ranks.check_ranks(group.cpu_group, folder, vocabulary_values(get_spec().speculative_token_map))


def seconds_of_first_rank(seconds: float) -> float:
    """Return the seconds that the first rank has measured, on all ranks."""
    group = get_parallel().tp_group
    return seconds if group.world_size == 1 else core_ranks.of_first_rank(group.cpu_group, (seconds,))[0]
