"""What SGLang does with the drafts of its own worker in Triton kernels, which need a GPU, in plain torch.

Names and arguments are those of the kernels' callers, each of which has a module of its own name.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor


def row_argmax(x: Tensor) -> Tensor:
    """The place of the largest number in each row: [B, V] -> int64 [B]."""
    return x.argmax(-1)


def gather_spec_extras(
    indices: Tensor,
    topk_p_buf: Tensor,
    topk_index_buf: Tensor,
    output_tokens_buf: Tensor,
    hidden_states_buf: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The rows of each buffer that ``indices`` [B] names: what overlapping steps leave for each other."""
    hidden = None if hidden_states_buf is None else hidden_states_buf[indices]
    return topk_p_buf[indices], topk_index_buf[indices], output_tokens_buf[indices], hidden


FUNCTIONS = {function.__name__: function for function in (row_argmax, gather_spec_extras)}


def install(module: ModuleType) -> None:
    """Take the place of the function that the module is named after."""
    if not torch.cuda.is_available():
        name = module.__name__.rsplit(".", 1)[-1]
        setattr(module, name, FUNCTIONS[name])
