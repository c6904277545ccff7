"""What `benchmarks/fastmtp.py` measures: drafters by number of drafts and draft vocabulary, on questions by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.vocabulary.vocabularies import AUTO, NONE

DRAFTS = (1, 2, 3)  # K of the tables


@dataclass(frozen=True)
class Setup:
    """A drafter as it is served; size is that of its draft vocabulary, None with the language "none"."""

    drafter: str
    num_drafts: int
    size: int | None = None
    language: str = NONE

    @property
    def label(self) -> str:
        """Of a row."""
        if self.language == NONE:
            return self.drafter
        return f"{self.drafter} + FR {self.size}" + ("" if self.language == AUTO else f", {self.language} for all")

    def additional_config(self, vocabulary: Path | None) -> dict[str, Any]:
        """vLLM's additional-config."""
        if self.language == NONE:
            return {"mtpc": {"language": NONE}}
        return {"mtpc": {"vocabulary": str(vocabulary), "size": self.size, "language": self.language}}


class Tables(NamedTuple):
    """The setups of each table, in the order of its rows."""

    methods: list[Setup]  # the paper's table 1
    sizes: list[Setup]  # its table 2
    languages: list[Setup]  # one language's vocabulary for all kinds of text: right for one, wrong for the others

    @property
    def all(self) -> list[Setup]:
        """Each once."""
        return list(dict.fromkeys((*self.methods, *self.sizes, *self.languages)))


def tables(drafters: Sequence[str], compressed: str | None, sizes: Sequence[int], languages: Sequence[str]) -> Tables:
    """All setups: every drafter with every K; with draft vocabularies, the one named, at the last K.

    The first of ``sizes`` is that of the first and of the last table.
    """
    methods = []
    for drafts in DRAFTS:
        methods += [Setup(name, drafts) for name in drafters]
        if compressed is not None:
            methods.append(Setup(compressed, drafts, sizes[0], AUTO))
    if compressed is None:
        return Tables(methods, [], [])
    whole = Setup(compressed, DRAFTS[-1])
    by_size = [Setup(compressed, DRAFTS[-1], size, AUTO) for size in sizes]
    by_language = [Setup(compressed, DRAFTS[-1], sizes[0], language) for language in (AUTO, *languages)]
    return Tables(methods, [*by_size, whole], [*by_language, whole] if languages else [])
