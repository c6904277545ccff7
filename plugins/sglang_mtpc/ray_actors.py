"""Loading of SGLang's plugins in the Ray actors of its schedulers.

SGLang loads plugins in every process that it starts, but not in the actors that Ray starts for ``--use-ray`` or for Ray
Serve.  The server arguments that an actor receives therefore load them when they are unpickled there, which is before
the actor builds its scheduler.  Ray's ``worker_process_setup_hook`` belongs to a whole job, and that of Ray Serve is
not SGLang's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.plugins import load_plugins

from mtpc.serving.after_import import after_import
from sglang_mtpc import integration_points
from sglang_mtpc.hooks import put_around
from sglang_mtpc.native_settings import is_plugin_token_map
from sglang_mtpc.settings import is_ours

HOOKED = "sglang.srt.ray.engine._create_scheduler_actor"


def install() -> None:
    """Wrap SGLang's creation of an actor with `create_actor`, once SGLang imports its engine for Ray."""
    after_import(integration_points.RAY_ENGINE, lambda engine: _install())


def _install() -> None:
    if next(integration_points.problems({integration_points.RAY}), None) is None:  # else drafters are rejected
        put_around(HOOKED, create_actor)


def create_actor(original: Callable[..., Any], *args: Any, server_args: Any, **options: Any) -> Any:
    """Create the actor of a scheduler, which loads plugins first if it serves a drafter or draft vocabularies."""
    settings = resolving_view(server_args)
    if is_ours(settings) or is_plugin_token_map(settings.speculative_token_map):
        server_args = _LoadsPlugins(server_args)
    return original(*args, server_args=server_args, **options)


class _LoadsPlugins:
    """SGLang's server arguments on their way to an actor; unpickled, they are themselves again."""

    def __init__(self, server_args: Any) -> None:
        self.server_args = server_args

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return _after_loading_plugins, (self.server_args,)


def _after_loading_plugins(server_args: Any) -> Any:
    load_plugins()
    return server_args
