"""The command group: errors in options or files become one sentence on standard error and exit code 2."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from mtpc.errors import MTPCError, one_line
from mtpc.lab.extras import missing_extra


class Group(TyperGroup):
    """A command group that prints errors as one sentence, without a stack trace."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the options before the command."""
        with errors_as_sentences():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with errors_as_sentences():
            return super().invoke(ctx)


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Exit with code 2 and one sentence on a wrong option, an `MTPCError`, a missing package, or a system error.

    Yields:
        None.

    Raises:
        typer.Exit: One of these errors occurred.
    """
    try:
        yield
    except MTPCError as error:
        sentence = str(error)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a private class of typer, which then prints the help
            raise
        sentence = " ".join(error.format_message().replace("Value error, ", "").split())
    except ModuleNotFoundError as error:
        sentence = missing_extra(error)
    except OSError as error:
        if error.errno in (None, errno.EPIPE):
            raise
        sentence = f"{error.strerror}: {error.filename or 'a file'}"
    else:
        return
    sentence = one_line(sentence).removesuffix(".")
    print(f"mtpc: {sentence}{'' if sentence.endswith('?') else '.'}", file=sys.stderr)
    raise typer.Exit(2)
