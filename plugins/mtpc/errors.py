"""The one exception type whose message is meant for the user, not for a debugger."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any
from uuid import uuid4

VARIABLE = "MTPC_REFUSAL"  # file in which a process that this one starts says why it ends

LONGEST_WORD, LONGEST = 300, 1500  # characters of a word and of a sentence that are shown whole
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


class MTPCError(ValueError):
    """A setting or a file is wrong.  The message is one sentence: what was found, what was expected.

    Raised by the core, shown as it is (no stack trace) by the command line and the engine adapters.
    """

    def __init__(self, message: str = "") -> None:
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


def show_messages() -> None:
    """From now on an uncaught `MTPCError` ends this process with its sentence instead of a stack trace."""
    previous = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sentence = str(error) if isinstance(error, MTPCError) else _child_message()
        if sentence is None:
            previous(kind, error, trace)
        else:
            print(f"mtpc: {sentence}", file=sys.stderr)

    sys.excepthook = show


def await_child_message() -> None:
    """The same, also with the sentence of a process that this one starts from now on, see `exiting_with_message`."""
    if parent_process() is not None:  # an engine's process, which looks at the settings again
        return
    os.environ[VARIABLE] = str(Path(gettempdir(), f"mtpc-refusal-{uuid4().hex}"))
    show_messages()


@contextmanager
def exiting_with_message() -> Iterator[None]:
    """In a process that an engine starts: an `MTPCError` ends it with its sentence, for which the first process waits.

    So does, without a word, whatever else is wrong after that: what processes say whose others are gone.
    """
    try:
        yield
    except Exception as error:
        file = Path(os.environ.get(VARIABLE, os.devnull))
        said = isinstance(error, MTPCError)
        if said and VARIABLE in os.environ:
            with suppress(OSError), file.open("x") as stream:
                stream.write(str(error))
        if not file.is_file():
            raise
        raise SystemExit(f"mtpc: {error}" if said else 1) from None


def exits_with_message(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, `exiting_with_message` why it ends."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        with exiting_with_message():
            return function(*args, **named)

    return run


def _child_message() -> str | None:
    """What a process that this one has started has said, once; None: nothing."""
    file = Path(os.environ.get(VARIABLE, os.devnull))
    if not file.is_file():
        return None
    sentence = file.read_text()
    file.unlink()
    return sentence
