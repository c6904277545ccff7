"""`MTPCError`, the exception whose message is meant for the user, and how processes print it."""

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

VARIABLE = "MTPC_REFUSAL"  # names the file in which a child process leaves the message that it ends with

_PREFIX = "mtpc-refusal-"  # of that file's name, before the id of the process that awaits messages

LONGEST_WORD, LONGEST = 300, 1500  # characters of a word and of a message that are shown in full
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


class MTPCError(ValueError):
    """A setting or a file is wrong. The message is one sentence: what was found and what was expected.

    The core raises it. The command line and the engine adapters print it without a stack trace.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """Return text on one line, with long words and long texts shortened in the middle.

    Args:
        text: A message that quotes names and values of any length.

    Returns:
        At most `LONGEST` characters and an ellipsis.
    """
    line = _LONG_WORD.sub(lambda word: _shortened(word.group(), LONGEST_WORD), _BREAK.sub(" ", text.strip()))
    return _shortened(line, LONGEST)


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of another package's error message, to end a sentence with.

    Args:
        error: Any exception.

    Returns:
        The line without its final period, or the exception's type where it has no message.
    """
    return next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__


def show_messages() -> None:
    """From now on, end this process on an uncaught `MTPCError` with its message instead of a stack trace."""
    previous = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        message = str(error) if isinstance(error, MTPCError) else _child_message()
        if message is None:
            previous(kind, error, trace)
        else:
            print(f"mtpc: {message}", file=sys.stderr)

    sys.excepthook = show


def await_child_message() -> None:
    """Do as `show_messages`, also for an `MTPCError` in a child process that this one starts later.

    The child process must run under `exiting_with_message` or `exits_with_message`.
    """
    if parent_process() is not None:  # an engine's child process, which validates the settings again
        return
    os.environ[VARIABLE] = str(Path(gettempdir(), f"{_PREFIX}{os.getpid()}-{uuid4().hex}"))
    show_messages()


@contextmanager
def exiting_with_message() -> Iterator[None]:
    """End this child process on an `MTPCError` with its message, and pass the message to the parent process.

    Any other error after that ends the process silently: it only reports that other processes are gone.
    A process that awaits messages itself keeps its errors: an engine within it must not end a user's program.
    """
    try:
        yield
    except Exception as error:
        file = Path(os.environ.get(VARIABLE, os.devnull))
        if file.name.startswith(f"{_PREFIX}{os.getpid()}-"):
            raise
        is_ours = isinstance(error, MTPCError)
        if is_ours and VARIABLE in os.environ:
            with suppress(OSError), file.open("x") as stream:
                stream.write(str(error))
        if not file.is_file():
            raise
        raise SystemExit(f"mtpc: {error}" if is_ours else 1) from None


def exits_with_message(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to run under `exiting_with_message`.

    Args:
        function: Called in a process that an engine starts.

    Returns:
        The function with the same signature.
    """

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        with exiting_with_message():
            return function(*args, **named)

    return run


def _child_message() -> str | None:
    """Return the message of a child process and delete it; None: there is none."""
    file = Path(os.environ.get(VARIABLE, os.devnull))
    if not file.is_file():
        return None
    message = file.read_text()
    file.unlink()
    return message
