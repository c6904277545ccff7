"""The registry of draft methods: the only place that names them all.

A distribution that brings another draft method names it in the entry point group ``mtpc.methods``; both engines then serve
its drafters, and `mtpc` knows them.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

from mtpc.errors import MTPCError
from mtpc.files.config_json import read_config_file
from mtpc.methods.contract import DrafterConfig, DraftMethod
from mtpc.methods.copying import PromptLookupOnly
from mtpc.methods.fastmtp import FastMTP
from mtpc.methods.gumiho import Gumiho
from mtpc.methods.mtpc import MTPC

ENTRY_POINT_GROUP = "mtpc.methods"  # of entry points, each a class derived from `DraftMethod`

__all__ = [
    "DraftMethod",
    "DrafterConfig",
    "draft_methods",
    "method_of",
    "broken_methods",
    "recognize",
    "recognize_or_none",
]


@cache
def draft_methods() -> tuple[DraftMethod, ...]:
    """Every draft method: this project's, then those of other distributions that can be loaded (see `broken_methods`)."""
    others = (method for _, method in _others() if isinstance(method, DraftMethod))
    return (MTPC(), FastMTP(), Gumiho(), PromptLookupOnly(), *others)


def broken_methods() -> dict[str, str]:
    """Why draft methods of other distributions cannot be loaded, by name; what is broken there breaks nothing here."""
    return {name: reason for name, reason in _others() if isinstance(reason, str)}


def _others() -> list[tuple[str, DraftMethod | str]]:
    """The entry points' draft methods, or why there is none."""
    others: list[tuple[str, DraftMethod | str]] = []
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            method = entry.load()()
            others.append(
                (entry.name, method if isinstance(method, DraftMethod) else f"{entry.value} is no DraftMethod")
            )
        except Exception as error:  # another distribution may bring anything
            others.append((entry.name, f"{type(error).__name__}: {error}".splitlines()[0]))
    return others


def recognize(folder: Path | str) -> DraftMethod | None:
    """The draft method that the ``config.json`` of a directory names; None: it names none, it is another kind of model.

    Errors: `MTPCError` where there is no ``config.json`` that can be read.
    """
    values = read_config_file(folder)
    return next((method for method in draft_methods() if method.describes(values)), None)


def recognize_or_none(folder: Path | str) -> DraftMethod | None:
    """The same, None also for what cannot be read: it may be a name on a model hub."""
    try:
        return recognize(folder)
    except MTPCError:
        return None


def method_of(folder: Path | str) -> DraftMethod:
    """The draft method of a drafter checkpoint.

    Errors: `MTPCError` as `recognize`, or where the directory holds no drafter.
    """
    method = recognize(folder)
    if method is None:
        sections = ", ".join(repr(each.name) for each in draft_methods())
        broken = "".join(
            f"; the draft method {name!r} cannot be loaded ({reason})" for name, reason in broken_methods().items()
        )
        raise MTPCError(f"{Path(folder) / 'config.json'} describes no drafter: it has no section {sections}{broken}.")
    return method
