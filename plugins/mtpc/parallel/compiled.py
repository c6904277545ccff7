"""Drafting for one request on a CPU, where a small operation costs more to call than to compute."""

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
    """Whether torch can compile for the CPU of this machine: it needs a C++ compiler."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


def drafting_for_one(parallel: ParallelPart) -> Callable[..., Draft]:
    """`ParallelPart.draft` for a batch of one, compiled where there `has_compiler`, again for every new kind of argument.

    A bfloat16 window draws from a copy of itself with int8 weights: not quite the same distribution, but the one that
    the draft states.  In float32 the draft is the window's own.  The window must not change afterwards: the compiled
    code looks only at its arguments.
    """
    first = next(parallel.parameters(), None)
    if first is None or parallel.reads_autoregressive:  # nothing is computed, or much of it is not the window's own
        return parallel.draft
    if first.dtype == torch.bfloat16:
        parallel = deepcopy(parallel)
        use_int8_weights(parallel)
    if not has_compiler():
        return parallel.draft

    # The guards go by the names of these arguments, whatever those of a method that stands in for `ParallelPart.draft`,
    # and the tensors of tuples are arguments of their own: guards on what a tuple holds go by other names.
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
    """Of the conditions to check before each call, those on the arguments: the rest cost more than the draft's sums."""
    return [guard.name in ARGUMENTS for guard in guards]
