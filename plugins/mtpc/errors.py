"""The one exception type whose message is meant for the user, not for a debugger."""

from __future__ import annotations

import sys
from types import TracebackType


class MTPCError(ValueError):
    """A setting or a file is wrong.  The message is one sentence: what was found, what was expected.

    Raised by the core, shown as it is (no stack trace) by the command line and the engine adapters.
    """


def first_line(error: BaseException) -> str:
    """What another package's error says, for the end of a sentence."""
    return next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__


def show_sentences() -> None:
    """From now on an uncaught `MTPCError` ends this process with its sentence instead of a stack trace."""
    previous = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MTPCError):
            print(f"mtpc: {error}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    sys.excepthook = show
