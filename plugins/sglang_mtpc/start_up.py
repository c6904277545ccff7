"""Check of the drafter while SGLang resolves its arguments, before any engine process exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.arg_groups.overrides import declare_resolution, model_config_of, resolving_view
from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook

from mtpc.errors import MTPCError, await_child_message, exits_with_message, show_messages
from mtpc.files.hub import local_folder
from mtpc.serving.after_import import after_import
from sglang_mtpc import native_settings, ray_actors
from sglang_mtpc.native_settings import PACKAGE
from sglang_mtpc.settings import check_settings, is_ours

STAGE = "handle_speculative_decoding"  # stage of SGLang's resolution; nothing reads the drafter before it


def install() -> None:
    """Register the check before SGLang handles speculative settings; hook its choice of a worker and its Ray actors."""
    register_resolution_hook(STAGE)(check_first)
    native_settings.install()
    ray_actors.install()
    after_import("sglang.srt.managers.scheduler", install_scheduler)


def install_scheduler(scheduler: Any) -> None:
    """Let a scheduler process that fails with `MTPCError` report it in one sentence."""
    scheduler.Scheduler.__init__ = exits_with_message(scheduler.Scheduler.__init__)


def check_first(server_args: Any, previous: Callable[[Any], None]) -> None:
    """Check the settings and the drafter, then run SGLang's own handling of this stage.

    Args:
        server_args: SGLang's server arguments.
        previous: SGLang's handling.

    Raises:
        MTPCError: See `mtpc.files.hub.local_folder` and `sglang_mtpc.settings.check_settings`.
    """
    try:
        _download(server_args)
        shape = check_settings(resolving_view(server_args), server_args, lambda: model_config_of(server_args))
    except MTPCError:
        show_messages()
        raise
    settings = resolving_view(server_args)
    if settings.speculative_algorithm is not None:
        await_child_message()
    if shape is None or not settings.speculative_adaptive:
        native_settings.handle_speculative_decoding(server_args, previous)
        return
    # SGLang's handling knows adaptive draft lengths for its own algorithms only, and would disable them with a warning.
    declare_resolution(server_args, PACKAGE, speculative_adaptive=False, speculative_num_steps=shape.depth)
    previous(server_args)
    declare_resolution(server_args, PACKAGE, speculative_adaptive=True)


def _download(server_args: Any) -> None:
    """Replace the Hugging Face id of a drafter by its local folder, before anything reads its files.

    Raises:
        MTPCError: See `mtpc.files.hub.local_folder`.
    """
    settings = resolving_view(server_args)
    named = settings.speculative_draft_model_path
    if named is None or not is_ours(settings):
        return
    folder = str(local_folder(named, settings.speculative_draft_model_revision))
    if folder != named:
        declare_resolution(server_args, PACKAGE, speculative_draft_model_path=folder)
