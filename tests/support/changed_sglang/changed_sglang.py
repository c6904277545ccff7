"""A plugin for tests: an SGLang of another version, where a function that the adapter calls takes something else."""

from __future__ import annotations

from typing import Any

from sglang.srt.arg_groups import overrides


def register() -> None:
    """Entry point of ``sglang.srt.plugins``."""
    original = overrides.resolving_view

    def resolving_view(configuration: Any) -> Any:
        return original(configuration)

    overrides.resolving_view = resolving_view
