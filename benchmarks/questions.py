"""The questions of benchmarks by kind: held-out ones of conversations, or those of a prompts file by its groups."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.prompts import Prompts, prompts_of_file
from mtpc.lab.text.conversations import read_conversations

KINDS = {"source": "code"}  # kinds of conversations that are one kind of text; the others keep their names
# Spec-Bench's first group; its others are each one kind.
MT_BENCH = ("coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem", "writing")


class Question(NamedTuple):
    """The ids of a question in the target's chat template."""

    kind: str
    tokens: list[int]


def read_questions(data: Path | None, file: Path, target: Path, count: int) -> list[Question]:
    """So many questions of each kind: the held-out ones of a folder of conversations, else those of a prompts file.

    Errors: `MTPCError` where there is none, or what `mtpc.lab.evaluation.prompts.prompts_of_file` raises.
    """
    if data is not None:
        conversations = (one for one in read_conversations(data) if one.heldout)
        questions = [Question(KINDS.get(one.kind, one.kind), list(one.tokens[: one.start])) for one in conversations]
        if not questions:
            raise MTPCError(f"{data} holds no question that is held out from training.")
    else:
        prompts = prompts_of_file(file, target, sys.maxsize)
        questions = [Question(kind, tokens) for kind, asked in groups(prompts.by_kind).items() for tokens in asked]
    kinds = sorted({question.kind for question in questions})
    return [question for kind in kinds for question in of_kind(questions, kind)[:count]]


def prompts_of_files(files: Sequence[Path], target: Path, count: int) -> Prompts:
    """As `mtpc.lab.evaluation.prompts.prompts_of_file`, of several files: of a kind in two of them, the last one's."""
    read = [prompts_of_file(file, target, count) for file in files]
    by_kind = {kind: asked for prompts in read for kind, asked in prompts.by_kind.items()}
    return Prompts(by_kind, stop_at_end=all(prompts.stop_at_end for prompts in read))


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


def asked(questions: Iterable[Question]) -> Prompts:
    """The questions as what a target answers."""
    by_kind: dict[str, list[list[int]]] = {}
    for question in questions:
        by_kind.setdefault(question.kind, []).append(question.tokens)
    return Prompts(by_kind)
