"""Compiled drafting for batch size 1 on a CPU, where operator overhead exceeds computation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft, DraftContext, Mode
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.int8 import use_int8_weights

ARGUMENTS = frozenset({"states", "tokens", "temperature", "noise", "num_drafts", "mode", "copied", "chances", "weight"})


def has_compiler() -> bool:
    """Return whether torch can compile for this machine's CPU, which needs a C++ compiler."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


def drafting_for_one(parallel: ParallelPart) -> Callable[..., Draft]:
    """Return `ParallelPart.draft` for batch size 1, compiled where there is a compiler and the part `compiles`.

    It is compiled again for every new combination of argument types.
    A bfloat16 part drafts with a copy that has int8 weights. Its distribution differs slightly, and the draft contains
    the distribution that its tokens were drawn from. A float32 part drafts with its own weights. The part must not
    change afterwards: the compiled code only checks its arguments.

    Args:
        parallel: The parallel part.

    Returns:
        A function with the signature of `ParallelPart.draft`.
    """
    first = next(parallel.parameters(), None)
    if first is None or parallel.reads_head:  # no weights, or most of the work is in the target's head
        return parallel.draft
    if first.dtype == torch.bfloat16:
        parallel = deepcopy(parallel)
        use_int8_weights(parallel)
    if not has_compiler() or not parallel.compiles:
        return parallel.draft

    # Guards are filtered by these argument names, so they are fixed here, whatever names an override of
    # `ParallelPart.draft` uses. Tensors of tuples are separate arguments: guards on a tuple's items have other names.
    def flat(
        states: Tensor,
        tokens: Tensor,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copied: Tensor | None,
        chances: Tensor | None,
        weight: Tensor | None,
    ) -> Draft:
        copying = None
        if copied is not None and chances is not None and weight is not None:
            copying = Copying(Copied(copied, chances), 0, weight)
        return parallel.draft(DraftContext(states, tokens), temperature, noise, num_drafts, mode, copying)

    compiled = torch.compile(flat, dynamic=False, options={"guard_filter_fn": _of_arguments})

    def draft(
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        copied, chances, weight = (None, None, None) if copying is None else copying.rest()
        drafted: Draft = compiled(
            context.states, context.tokens, temperature, noise, num_drafts, mode, copied, chances, weight
        )
        return drafted

    return draft


def _of_arguments(guards: Sequence[Any]) -> list[bool]:
    """Keep only the guards on the arguments: checking the others takes longer than the draft itself."""
    return [guard.name in ARGUMENTS for guard in guards]
