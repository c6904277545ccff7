"""Makes all tensor-parallel ranks draft the same tokens.

Only the first rank has a text part, and the others receive its draft.  Each rank has a whole copy of the parallel part.
A reduction over ranks may leave different bits on each of them, so all ranks draft from the first rank's states.  All
ranks must also have the same drafter.  Otherwise they would write keys and values of different tokens into their KV
caches, without any error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from vllm.distributed import (
    broadcast_tensor_dict,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    get_tp_group,
    tensor_model_parallel_all_gather,
)

from mtpc.draft_model.part import TextDraft
from mtpc.serving import ranks as serving_ranks
from mtpc.target_head.rows import Ranks
from vllm_mtpc.additional_config import vocabulary_values
from vllm_mtpc.dispatch import folder_of, serves


def of_first_rank(states: Tensor) -> Tensor:
    """Broadcast the first rank's states, by the gather that vLLM uses for logits, which works in CUDA graphs.

    Args:
        states: [n, ...], of the same shape on all ranks.

    Returns:
        The first rank's states, [n, ...].
    """
    gathered: Tensor = tensor_model_parallel_all_gather(states.contiguous(), dim=0)
    return gathered[: len(states)]


def draft_of_first_rank(draft: TextDraft | None) -> TextDraft:
    """Broadcast the draft of the text part, which only the first rank has.

    Args:
        draft: The first rank's draft; None on the others.

    Returns:
        The first rank's draft.
    """
    return TextDraft(**broadcast_tensor_dict(None if draft is None else draft._asdict()))


def head_ranks() -> Ranks:
    """Return the tensor-parallel ranks over which the target's output head is sharded."""
    return Ranks(
        get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size(), tensor_model_parallel_all_gather
    )


def check_ranks(vllm_config: Any) -> None:
    """Check that all tensor-parallel ranks draft with the same files.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a drafter.

    Raises:
        MTPCError: They differ, see `mtpc.serving.ranks.check_ranks`.
    """
    group = get_tp_group()
    if group.world_size > 1:
        # vLLM resolves the names of its own drafters itself.
        draft = vllm_config.speculative_config.draft_model_config
        folder = folder_of(vllm_config) if serves(vllm_config) else Path(draft.model)
        serving_ranks.check_ranks(group.cpu_group, folder, vocabulary_values(vllm_config.additional_config))


def seconds_of_first_rank(seconds: float) -> float:
    """Broadcast the first rank's measurement.

    Args:
        seconds: This rank's measurement, in seconds.

    Returns:
        The first rank's.
    """
    group = get_tp_group()
    return seconds if group.world_size == 1 else serving_ranks.of_first_rank(group.cpu_group, (seconds,))[0]
