"""Functions of SGLang's draft worker in plain torch, which SGLang implements as Triton kernels for GPUs.

Names and arguments are those of SGLang's functions; each is in an SGLang module of the same name.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor


def row_argmax(x: Tensor) -> Tensor:
    """Return the index of the largest number in each row: [B, V] -> int64 [B]."""
    return x.argmax(-1)


def gather_spec_extras(
    indices: Tensor,
    topk_p_buf: Tensor,
    topk_index_buf: Tensor,
    output_tokens_buf: Tensor,
    hidden_states_buf: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return rows ``indices`` [B] of each buffer, through which overlapping steps pass on their results."""
    hidden = None if hidden_states_buf is None else hidden_states_buf[indices]
    return topk_p_buf[indices], topk_index_buf[indices], output_tokens_buf[indices], hidden


FUNCTIONS = {function.__name__: function for function in (row_argmax, gather_spec_extras)}


def install(module: ModuleType) -> None:
    """Replace the function that the module is named after."""
    if not torch.cuda.is_available():
        name = module.__name__.rsplit(".", 1)[-1]
        setattr(module, name, FUNCTIONS[name])
