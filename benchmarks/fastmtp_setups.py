"""What `benchmarks/fastmtp.py` measures: drafters by number of drafts and draft vocabulary, on questions by kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.bench.run import read_prompts
from mtpc.distill.conversations import read_conversations
from mtpc.errors import MTPCError
from mtpc.vocabulary.heads import AUTO, NONE

KINDS = {"source": "code"}  # kinds of conversations that are one kind of text; the others keep their names
STEPS = (1, 2, 3)  # K of the tables
OTHER = "other"  # the kind of a question that does not name its own


class Question(NamedTuple):
    """The ids of a question in the target's chat template."""

    kind: str
    tokens: list[int]


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
        return f"{self.drafter} + FR {self.size}" + ("" if self.language == AUTO else f", {self.language} map")

    def additional_config(self, vocabulary: Path | None) -> dict[str, Any]:
        """vLLM's additional-config."""
        if self.language == NONE:
            return {"mtpc": {"language": NONE}}
        return {"mtpc": {"vocabulary": str(vocabulary), "size": self.size, "language": self.language}}


class Tables(NamedTuple):
    """The setups of each table, in the order of its rows."""

    methods: list[Setup]  # the paper's table 1
    sizes: list[Setup]  # its table 2
    maps: list[Setup]  # a language's map on all kinds of text: right for one, wrong for the others

    @property
    def all(self) -> list[Setup]:
        """Each once."""
        return list(dict.fromkeys((*self.methods, *self.sizes, *self.maps)))


def tables(drafters: Sequence[str], compressed: str | None, sizes: Sequence[int], maps: Sequence[str]) -> Tables:
    """All setups: every drafter with every K; with draft vocabularies, the one named, at the last K.

    The first of ``sizes`` is that of the first and of the last table.
    """
    methods = []
    for steps in STEPS:
        methods += [Setup(name, steps) for name in drafters]
        if compressed is not None:
            methods.append(Setup(compressed, steps, sizes[0], AUTO))
    if compressed is None:
        return Tables(methods, [], [])
    whole = Setup(compressed, STEPS[-1])
    by_size = [Setup(compressed, STEPS[-1], size, AUTO) for size in sizes]
    by_map = [Setup(compressed, STEPS[-1], sizes[0], language) for language in (AUTO, *maps)]
    return Tables(methods, [*by_size, whole], [*by_map, whole] if maps else [])


def read_questions(data: Path | None, file: Path, target: Path, each: int) -> list[Question]:
    """So many questions of each kind: the held-out ones of a folder of conversations, else those of a prompts file.

    Errors: `MTPCError` where there is none, or what `mtpc.bench.run.read_prompts` raises.
    """
    if data is not None:
        conversations = (one for one in read_conversations(data) if one.heldout)
        found = [Question(KINDS.get(one.kind, one.kind), list(one.tokens[: one.start])) for one in conversations]
    else:
        prompts = read_prompts(file, target)
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [
            Question(line.get("kind", OTHER), prompt)
            for line, prompt in zip(lines, prompts, strict=True)
            if isinstance(prompt, list)
        ]
    if not found:
        raise MTPCError(f"{data or file} holds no question for a chat model that is held out from training.")
    return [question for kind in sorted({one.kind for one in found}) for question in of_kind(found, kind)[:each]]


def of_kind(questions: Iterable[Question], kind: str) -> list[Question]:
    """The questions of one kind."""
    return [question for question in questions if question.kind == kind]
