"""The registry of draft methods, the only module that names them all.

A package that adds a draft method lists its class in the entry point group ``mtpc.methods``. Both engines then serve
its drafters, and the `mtpc` commands accept them.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

from mtpc.errors import MTPCError
from mtpc.files.config_json import read_config_file
from mtpc.methods.bytecircuit import ByteCircuit
from mtpc.methods.contract import DrafterConfig, DraftMethod
from mtpc.methods.copying import PromptLookupOnly
from mtpc.methods.fastmtp import FastMTP
from mtpc.methods.gumiho import Gumiho
from mtpc.methods.medusa import Medusa
from mtpc.methods.mtpc import MTPC
from mtpc.methods.pair import Pair

ENTRY_POINT_GROUP = "mtpc.methods"  # each entry point is a subclass of `DraftMethod`

__all__ = [
    "DraftMethod",
    "DrafterConfig",
    "broken_methods",
    "draft_methods",
    "method_of",
    "recognize",
    "recognize_or_none",
]


@cache
def draft_methods() -> tuple[DraftMethod, ...]:
    """Return every draft method: this project's, then those of other packages that can be loaded.

    See `broken_methods` for the others.
    """
    others = (method for _, method in _others() if isinstance(method, DraftMethod))
    return (MTPC(), ByteCircuit(), FastMTP(), Gumiho(), Medusa(), PromptLookupOnly(), Pair(), *others)


def broken_methods() -> dict[str, str]:
    """Return why draft methods of other packages cannot be loaded, by entry point name."""
    return {name: reason for name, reason in _others() if isinstance(reason, str)}


def _others() -> list[tuple[str, DraftMethod | str]]:
    """Return the draft methods of entry points, or why they cannot be loaded."""
    others: list[tuple[str, DraftMethod | str]] = []
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            method = entry.load()()
            others.append(
                (entry.name, method if isinstance(method, DraftMethod) else f"{entry.value} is not a DraftMethod")
            )
        except Exception as error:  # another package may raise anything
            others.append((entry.name, f"{type(error).__name__}: {error}".splitlines()[0]))
    return others


def recognize(folder: Path | str) -> DraftMethod | None:
    """Find the draft method of a directory by its ``config.json``.

    Args:
        folder: A drafter checkpoint or another model.

    Returns:
        The draft method, or None for another type of model.

    Raises:
        MTPCError: Where there is no readable ``config.json``.
    """
    values = read_config_file(folder)
    return next((method for method in draft_methods() if method.describes(values)), None)


def recognize_or_none(folder: Path | str) -> DraftMethod | None:
    """Find the draft method of a directory, or None also where there is no readable ``config.json``.

    Args:
        folder: A directory, or a name on a model hub.

    Returns:
        The draft method, or None.
    """
    try:
        return recognize(folder)
    except MTPCError:
        return None


def method_of(folder: Path | str) -> DraftMethod:
    """Return the draft method of a drafter checkpoint.

    Args:
        folder: The drafter checkpoint.

    Returns:
        The draft method.

    Raises:
        MTPCError: Where there is no readable ``config.json``, or it describes no drafter.
    """
    method = recognize(folder)
    if method is None:
        sections = ", ".join(repr(each.name) for each in draft_methods())
        broken = "".join(
            f"; the draft method {name!r} cannot be loaded ({reason})" for name, reason in broken_methods().items()
        )
        raise MTPCError(f"{Path(folder) / 'config.json'} describes no drafter: it has no section {sections}{broken}.")
    return method
