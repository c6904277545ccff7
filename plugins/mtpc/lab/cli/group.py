"""The command group: whatever is wrong with a command line or a file becomes one sentence and exit code 2."""

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
    """Shows what is wrong on standard error, without a stack trace."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options before the command."""
        with errors_as_sentences():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with errors_as_sentences():
            return super().invoke(ctx)


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """End with one sentence for a wrong option, an `MTPCError`, a missing package, and what the system refuses."""
    try:
        yield
    except MTPCError as error:
        sentence = str(error)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # typer shows the help, and the class to nobody
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
    print(f"mtpc: {one_line(sentence).removesuffix('.')}.", file=sys.stderr)
    raise typer.Exit(2)
