"""Tensor-parallel ranks draft the same: each from its own whole copy of the window or of a head's rows, all from states
of the first rank.

A reduction over ranks need not leave the same bits on all of them, and ranks that draft different tokens write keys and
values of different texts, which nobody would notice.
"""

from __future__ import annotations

from torch import Tensor
from vllm.distributed import tensor_model_parallel_all_gather


def of_first_rank(states: Tensor) -> Tensor:
    """What the first rank has, of the same shape on all: [n, ...].

    It is gathered, as vLLM gathers logits, also in CUDA graphs.
    """
    gathered: Tensor = tensor_model_parallel_all_gather(states.contiguous(), dim=0)
    return gathered[: len(states)]
