"""Tensor-parallel ranks draft the same: each from its own whole copy of the window, all from states of the first rank.

A reduction over ranks need not leave the same bits on all of them, and ranks that draft different tokens write keys and
values of different texts, which nobody would notice.  So do ranks that have different drafters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    get_tp_group,
    tensor_model_parallel_all_gather,
)

from mtpc.serving import ranks as alike
from mtpc.target_head.rows import Ranks
from vllm_mtpc.additional import vocabulary_values
from vllm_mtpc.dispatch import folder_of, serves


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


def check_ranks(vllm_config: Any) -> None:
    """Whether all ranks draft with the same files.

    Errors: `MTPCError`, see `mtpc.serving.ranks.check_ranks`.
    """
    group = get_tp_group()
    if group.world_size > 1:
        # One of vLLM's own drafters is a name, of which vLLM decides where it comes from.
        draft = vllm_config.speculative_config.draft_model_config
        folder = folder_of(vllm_config) if serves(vllm_config) else Path(draft.model)
        alike.check_ranks(group.cpu_group, folder, vocabulary_values(vllm_config.additional_config))


def seconds_of_first_rank(seconds: float) -> float:
    """What the first rank has measured, on all of them."""
    group = get_tp_group()
    return seconds if group.world_size == 1 else alike.of_first_rank(group.cpu_group, (seconds,))[0]
