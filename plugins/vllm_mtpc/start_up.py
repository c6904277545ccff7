"""Checks a drafter while vLLM reads its settings, in the first process, before any engine process starts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import ValidationError

from mtpc.errors import MTPCError, await_child_message, exits_with_message, show_messages
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import vocabulary_values
from vllm_mtpc.native.settings import check_native, check_native_runner
from vllm_mtpc.settings import check_complete, check_is_no_target, check_is_target, check_settings, drafter_folder


def install(arg_utils: Any) -> None:
    """Wrap the methods of ``EngineArgs`` that every way of starting vLLM calls to make its configuration.

    Args:
        arg_utils: vLLM's module ``vllm.engine.arg_utils``.
    """
    args_class = arg_utils.EngineArgs
    create, create_all = args_class.create_speculative_config, args_class.create_engine_config

    @functools.wraps(create_all)
    def create_engine_config(self: Any, *others: Any, **named: Any) -> Any:
        with one_line_errors():
            check_is_target(self.model)
        config = create_all(self, *others, **named)
        with one_line_errors():
            check_complete(config)
            check_native_runner(config)
        if config.speculative_config is not None:
            await_child_message()
        return config

    @functools.wraps(create)
    def create_speculative_config(
        self: Any, target_model_config: Any, target_parallel_config: Any, *others: Any, **named: Any
    ) -> Any:
        parallel = target_parallel_config
        created_by = partial(create, self, target_model_config, target_parallel_config, *others, **named)
        with one_line_errors():
            settings = _settings(self)
            if drafter_folder(settings) is None:
                check_is_no_target(settings, target_model_config)
                created = created_by()
                check_native(created, target_model_config, self.additional_config, parallel.pipeline_parallel_size)
                if created is not None and vocabulary_values(self.additional_config):
                    metrics.enable(self)
                return created
            added = check_settings(
                settings, target_model_config, self.additional_config,
                parallel.pipeline_parallel_size, parallel.tensor_parallel_size,
            )  # fmt: skip
            self.speculative_config = {**(self.speculative_config or {}), **added}
            metrics.enable(self)
            return _created(created_by)

    args_class.create_speculative_config, args_class.create_engine_config = (
        create_speculative_config, create_engine_config,
    )  # fmt: skip


def install_executor(executor: Any) -> None:
    """Wrap ``Executor.__init__``: end without a stack trace if a worker process has reported an `MTPCError`.

    Args:
        executor: vLLM's module ``vllm.v1.executor.abstract``.
    """
    executor.Executor.__init__ = exits_with_message(executor.Executor.__init__)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Make an uncaught `MTPCError` end this process with its message instead of a stack trace."""
    try:
        yield
    except MTPCError:
        show_messages()
        raise


def _created(create: Callable[[], Any]) -> Any:
    """Create vLLM's configuration; a wrong value of a key that only vLLM checks becomes an `MTPCError`."""
    try:
        return create()
    except ValidationError as error:
        first = error.errors()[0]
        raise MTPCError(f"speculative-config is wrong at {first['loc']}: {first['msg']}.") from None


def _settings(args: Any) -> dict[str, Any]:
    """Merge the speculative settings of ``--speculative-config`` and of the single options."""
    if not isinstance(args.speculative_config, dict | None):
        raise MTPCError(f"speculative-config must be a JSON object, but is {args.speculative_config!r}.")
    settings = {key.replace("-", "_"): value for key, value in (args.speculative_config or {}).items()}
    flags = {"method": args.spec_method, "model": args.spec_model, "num_speculative_tokens": args.spec_tokens}
    return settings | {key: value for key, value in flags.items() if value is not None}
