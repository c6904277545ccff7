"""Drafting for one request on a CPU, where a small operation costs more to call than to compute."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from mtpc.drafter.drafter import Draft, Drafter, Mode
from mtpc.int8 import use_int8_weights

ARGUMENTS = frozenset({"hidden", "token", "temperature", "noise", "num_drafts", "mode"})


def has_compiler() -> bool:
    """Whether torch can compile for the CPU of this machine: it needs a C++ compiler."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


def drafting_for_one(drafter: Drafter) -> Callable[..., Draft]:
    """`Drafter.draft` for a batch of one, compiled where there `has_compiler`, again for every new kind of argument.

    A bfloat16 drafter draws from a copy of itself with int8 weights in its head: not quite the same distribution,
    but the one that the draft states.  In float32 the draft is the drafter's own.  The drafter must not change
    afterwards: the compiled code looks only at its arguments.
    """
    if next(drafter.parameters()).dtype == torch.bfloat16:
        drafter = deepcopy(drafter)
        use_int8_weights(drafter.head)
    if not has_compiler():
        return drafter.draft

    # The guards go by the names of these arguments, whatever those of a method that stands in for `Drafter.draft`.
    def draft(
        hidden: Tensor, token: Tensor, temperature: Tensor | None, noise: Tensor | None, num_drafts: int, mode: Mode
    ) -> Draft:
        return drafter.draft(hidden, token, temperature, noise, num_drafts, mode)

    return torch.compile(draft, dynamic=False, options={"guard_filter_fn": _of_arguments})


def _of_arguments(guards: Sequence[Any]) -> list[bool]:
    """Of the conditions to check before each call, those on the arguments: the rest cost more than the draft's sums."""
    return [guard.name in ARGUMENTS for guard in guards]
