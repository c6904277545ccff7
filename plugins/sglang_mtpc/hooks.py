"""Wrapping of SGLang's functions through its `HookRegistry`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from mtpc.errors import MTPCError


@cache
def put_around(target: str, function: Callable[..., Any]) -> None:
    """Wrap a function of SGLang, once in this process.

    Args:
        target: Full name of SGLang's function.
        function: Wrapper; it gets the original function, followed by that function's arguments.

    Raises:
        MTPCError: SGLang did not apply the hook, for example because another plugin has replaced the function.
    """
    before = resolve_name(target)
    HookRegistry.register(target, function, HookType.AROUND)
    HookRegistry.apply_hooks()
    if resolve_name(target) is before:
        raise MTPCError(
            f"Cannot serve drafters: SGLang did not apply the hook around {target}; disable plugins that replace it."
        )
