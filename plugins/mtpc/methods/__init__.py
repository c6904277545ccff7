"""The registry of drafter families: the only place that names them all.

A distribution that brings another family names it in the entry point group ``mtpc.methods``; both engines then serve
its drafters, and `mtpc` knows them.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

from mtpc.errors import MTPCError
from mtpc.files.config_json import read_config_file
from mtpc.methods.contract import DrafterConfig, Family
from mtpc.methods.copying import CopyingAlone
from mtpc.methods.fastmtp import FastMTP
from mtpc.methods.gumiho import Gumiho
from mtpc.methods.mtpc import MTPC

GROUP = "mtpc.methods"  # of entry points, each a class derived from `Family`

__all__ = ["DrafterConfig", "Family", "families", "family_of", "problems", "recognise", "recognised"]


@cache
def families() -> tuple[Family, ...]:
    """Every family: this project's, then those of other distributions that can be loaded (see `problems`)."""
    others = (family for _, family in _others() if isinstance(family, Family))
    return (MTPC(), FastMTP(), Gumiho(), CopyingAlone(), *others)


def problems() -> dict[str, str]:
    """Why families of other distributions cannot be loaded, by name; what is broken there breaks nothing here."""
    return {name: reason for name, reason in _others() if isinstance(reason, str)}


def _others() -> list[tuple[str, Family | str]]:
    """The entry points' families, or why there is none."""
    others: list[tuple[str, Family | str]] = []
    for entry in metadata.entry_points(group=GROUP):
        try:
            family = entry.load()()
            others.append((entry.name, family if isinstance(family, Family) else f"{entry.value} is no Family"))
        except Exception as error:  # another distribution may bring anything
            others.append((entry.name, f"{type(error).__name__}: {error}".splitlines()[0]))
    return others


def recognise(folder: Path | str) -> Family | None:
    """The family that the ``config.json`` of a directory names; None: it names none, it is another kind of model.

    Errors: `MTPCError` where there is no ``config.json`` that can be read.
    """
    values = read_config_file(folder)
    return next((family for family in families() if family.describes(values)), None)


def recognised(folder: Path | str) -> Family | None:
    """The same, None also for what cannot be read: it may be a name on a model hub."""
    try:
        return recognise(folder)
    except MTPCError:
        return None


def family_of(folder: Path | str) -> Family:
    """The family of a drafter directory.

    Errors: `MTPCError` as `recognise`, or where the directory holds no drafter.
    """
    family = recognise(folder)
    if family is None:
        sections = ", ".join(repr(each.name) for each in families())
        broken = "".join(f"; the family {name!r} cannot be loaded ({reason})" for name, reason in problems().items())
        raise MTPCError(f"{Path(folder) / 'config.json'} describes no drafter: it has no section {sections}{broken}.")
    return family
