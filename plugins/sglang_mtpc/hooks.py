"""Functions of SGLang with one of ours around them, in SGLang's own way."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from mtpc.errors import MTPCError


@cache
def put_around(target: str, function: Callable[..., Any]) -> None:
    """Once in this process; the function gets the one that was there before, then what that one gets.

    Errors: `MTPCError` where another plugin was there before, so that SGLang leaves its function as it is.
    """
    before = resolve_name(target)
    HookRegistry.register(target, function, HookType.AROUND)
    HookRegistry.apply_hooks()
    if resolve_name(target) is before:
        raise MTPCError(f"drafters cannot be served: SGLang did not let {target} be wrapped; is there another plugin?")
