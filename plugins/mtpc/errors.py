"""The one exception type whose message is meant for the user, not for a debugger."""

from __future__ import annotations

import re
import sys
from types import TracebackType

LONGEST_WORD, LONGEST = 300, 1500  # characters of a word and of a sentence that are shown whole
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


class MTPCError(ValueError):
    """A setting or a file is wrong.  The message is one sentence: what was found, what was expected.

    Raised by the core, shown as it is (no stack trace) by the command line and the engine adapters.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """Text without line breaks, in which long words are shortened, and then the whole: they are of names and values."""
    line = _LONG_WORD.sub(lambda word: _shortened(word.group(), LONGEST_WORD), _BREAK.sub(" ", text.strip()))
    return _shortened(line, LONGEST)


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


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
