"""A plugin for tests: registering MTPC with SGLang fails."""

from __future__ import annotations

from sglang_mtpc import start_up


def register() -> None:
    """Entry point of ``sglang.srt.plugins``."""

    def install() -> None:
        raise OSError("no room")

    start_up.install = install
