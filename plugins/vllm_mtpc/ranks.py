"""Tensor-parallel ranks draft the same: each from its own whole copy of the window, all from states of the first rank.

A reduction over ranks need not leave the same bits on all of them, and ranks that draft different tokens write keys and
values of different texts, which nobody would notice.
"""

from __future__ import annotations

from torch import Tensor
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)

from mtpc.target_head.rows import Ranks


def of_first_rank(states: Tensor) -> Tensor:
    """What the first rank has, of the same shape on all: [n, ...].

    It is gathered, as vLLM gathers logits, also in CUDA graphs.
    """
    gathered: Tensor = tensor_model_parallel_all_gather(states.contiguous(), dim=0)
    return gathered[: len(states)]


def head_ranks() -> Ranks:
    """Those that the target's output head is shared out over."""
    return Ranks(
        get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size(), tensor_model_parallel_all_gather
    )
