"""Checks a drafter where vLLM reads its settings: in the first process, before any engine process exists."""

from __future__ import annotations

import functools
from typing import Any

from mtpc.errors import MTPCError, show_sentences
from vllm_mtpc.settings import check_settings


def install(arg_utils: Any) -> None:
    """Wrap ``EngineArgs.create_speculative_config``, which every way of starting vLLM calls."""
    args_class = arg_utils.EngineArgs
    create = args_class.create_speculative_config

    @functools.wraps(create)
    def create_speculative_config(self: Any, target_model_config: Any, target_parallel_config: Any) -> Any:
        parallel = target_parallel_config
        try:
            added = check_settings(
                _settings(self), target_model_config, self.additional_config,
                parallel.pipeline_parallel_size, parallel.tensor_parallel_size,
            )  # fmt: skip
        except MTPCError:
            show_sentences()
            raise
        if added:
            self.speculative_config = {**(self.speculative_config or {}), **added}
        return create(self, target_model_config, target_parallel_config)

    args_class.create_speculative_config = create_speculative_config


def _settings(args: Any) -> dict[str, Any]:
    """The speculative settings from all of the ways that the command line offers."""
    settings = {key.replace("-", "_"): value for key, value in (args.speculative_config or {}).items()}
    flags = {"method": args.spec_method, "model": args.spec_model, "num_speculative_tokens": args.spec_tokens}
    return settings | {key: value for key, value in flags.items() if value is not None}
