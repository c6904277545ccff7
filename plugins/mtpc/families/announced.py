"""The one line in an engine's log that says what drafts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torch import nn

from mtpc.families.family import Family


class Shares(NamedTuple):
    """How many tokens of a draft come from where."""

    serial: int
    window: int
    copied: int = 0  # beyond the drafter's own


def announced(
    folder: str | Path,
    family: Family,
    shares: Shares,
    vocabularies: str,
    modules: Iterable[nn.Module],
    target: Iterable[nn.Parameter],
    *more: str,
) -> str:
    """The line.

    vocabularies: what is drafted from.  modules: the drafter's; target: the parameters that it only shares.
    more: what else there is to say.
    """
    named = {
        "by its serial part": shares.serial,
        "by its window part": shares.window,
        "copied beyond those": shares.copied,
    }
    parts = ", ".join(f"{count} {what}" for what, count in named.items() if count)
    shared = {id(parameter) for parameter in target}
    own = {id(parameter): parameter.nbytes for module in modules for parameter in module.parameters()}
    memory = sum(size for parameter, size in own.items() if parameter not in shared)
    facts = [
        f"{folder} is {family.title} and drafts up to {sum(shares)} tokens",
        parts,
        vocabularies,
        f"its weights take {memory / 1e6:.1f} MB",
        *more,
    ]
    return f"{'; '.join(facts)}."
