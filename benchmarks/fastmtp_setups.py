"""What `benchmarks/fastmtp.py` measures: drafters by number of drafts and draft vocabulary, on questions by kind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.distill.conversations import read_conversations
from mtpc.errors import MTPCError
from mtpc.evaluation.prompts import prompts_of_file
from mtpc.vocabulary.vocabularies import AUTO, NONE

KINDS = {"source": "code"}  # kinds of conversations that are one kind of text; the others keep their names
DRAFTS = (1, 2, 3)  # K of the tables
# Spec-Bench's first group; its others are each one kind.
MT_BENCH = ("coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem", "writing")


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


def read_questions(data: Path | None, file: Path, target: Path, count: int) -> list[Question]:
    """So many questions of each kind: the held-out ones of a folder of conversations, else those of a prompts file.

    Errors: `MTPCError` where there is none, or what `mtpc.evaluation.prompts.prompts_of_file` raises.
    """
    if data is not None:
        conversations = (one for one in read_conversations(data) if one.heldout)
        questions = [Question(KINDS.get(one.kind, one.kind), list(one.tokens[: one.start])) for one in conversations]
    else:
        prompts = prompts_of_file(file, target, sys.maxsize)
        questions = [Question(kind, tokens) for kind, asked in groups(prompts.by_kind).items() for tokens in asked]
        questions = questions if prompts.answered else []
    if not questions:
        raise MTPCError(f"{data or file} holds no question for a chat model that is held out from training.")
    kinds = sorted({question.kind for question in questions})
    return [question for kind in kinds for question in of_kind(questions, kind)[:count]]


def groups(by_kind: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """Questions by group: where there are all kinds of MT-bench they are one, with a question of each kind in turn."""
    if not by_kind.keys() >= set(MT_BENCH):
        return by_kind
    turns = zip_longest(*(by_kind[kind] for kind in MT_BENCH))
    together = [question for turn in turns for question in turn if question is not None]
    return {"MT-bench": together} | {kind: asked for kind, asked in by_kind.items() if kind not in MT_BENCH}


def of_kind(questions: Iterable[Question], kind: str) -> list[Question]:
    """The questions of one kind."""
    return [question for question in questions if question.kind == kind]
