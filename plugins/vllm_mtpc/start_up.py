"""Checks a drafter where vLLM reads its settings: in the first process, before any engine process exists."""

from __future__ import annotations

import functools
import sys
from types import TracebackType
from typing import Any

from mtpc.errors import MTPCError
from vllm_mtpc.settings import check_settings


def install(arg_utils: Any) -> None:
    """Wrap ``EngineArgs.create_speculative_config``, which every way of starting vLLM calls."""
    args_class = arg_utils.EngineArgs
    create = args_class.create_speculative_config

    @functools.wraps(create)
    def create_speculative_config(self: Any, target_model_config: Any, target_parallel_config: Any) -> Any:
        try:
            check_settings(_settings(self), target_model_config)
        except MTPCError:
            _show_sentences()
            raise
        return create(self, target_model_config, target_parallel_config)

    args_class.create_speculative_config = create_speculative_config


def _settings(args: Any) -> dict[str, Any]:
    """The speculative settings from all of the ways that the command line offers."""
    settings = {key.replace("-", "_"): value for key, value in (args.speculative_config or {}).items()}
    flags = {"method": args.spec_method, "model": args.spec_model, "num_speculative_tokens": args.spec_tokens}
    return settings | {key: value for key, value in flags.items() if value is not None}


def _show_sentences() -> None:
    """From now on an uncaught `MTPCError` ends this process with its sentence instead of a stack trace."""
    previous = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MTPCError):
            print(f"mtpc: {error}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    sys.excepthook = show
