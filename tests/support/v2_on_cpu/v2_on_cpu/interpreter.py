"""What Triton 3.9's interpreter lacks for vLLM's kernels, and what makes it bearably fast."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter


def register() -> None:
    """Entry point of ``vllm.general_plugins``: fix the interpreter once in each process."""
    if os.environ.get("TRITON_INTERPRET") != "1" or hasattr(interpreter, "fixed"):
        return
    interpreter.fixed = True
    np.seterr(all="ignore")  # kernels hash with wrap-around and take logarithms of 0 on purpose
    _fix_comparisons()
    for name in ("log1p", "expm1", "tanh"):
        setattr(libdevice, name, _elementwise(getattr(np, name)))
    _patch_language_once()


def _fix_comparisons() -> None:
    """The result of a comparison keeps its operands' type, so that broadcasting a scalar mask makes integers."""
    builder = interpreter.InterpreterBuilder
    compute = builder.binary_op

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        result = compute(self, lhs, rhs, op)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1
        return result

    builder.binary_op = binary_op


def _elementwise(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A libdevice function, which the interpreter leaves as an empty declaration."""

    def call(x: Any, _semantic: Any = None) -> Any:
        data = function(x.handle.data.astype(np.float32)).astype(x.handle.data.dtype)
        return tl.tensor(interpreter.TensorHandle(data, x.handle.dtype), x.type)

    return call


def _patch_language_once() -> None:
    """The interpreter swaps triton.language's functions around every call; here nothing needs the originals back."""
    patch = interpreter._patch_lang
    patched: set[frozenset[str]] = set()
    modules_of: dict[Any, frozenset[str]] = {}

    class Kept:
        def restore(self) -> None:
            """Leave the language patched."""

    def patch_once(function: Any) -> Kept:
        if function not in modules_of:
            values = filter(inspect.ismodule, function.__globals__.values())
            modules_of[function] = frozenset(module.__name__ for module in values if module in (tl, tl.core))
        if modules_of[function] not in patched:
            patch(function)
            patched.add(modules_of[function])
        return Kept()

    interpreter._patch_lang = patch_once
