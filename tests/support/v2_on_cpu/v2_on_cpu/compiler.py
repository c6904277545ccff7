"""The half of a Triton backend that compiles; interpreted kernels never reach it."""

from __future__ import annotations

from typing import Any, NoReturn

from triton.backends import compiler


class InterpretedBackend(compiler.BaseBackend):
    """Answers for the target "cpu" and refuses to compile."""

    @staticmethod
    def supports_target(target: compiler.GPUTarget) -> bool:
        return target.backend == "cpu"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("this backend only interprets: set TRITON_INTERPRET=1")

    hash = parse_options = add_stages = load_dialects = get_module_map = _refuse
