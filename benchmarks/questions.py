"""Prompts of benchmarks by category: held-out questions of conversations, or the lines of a prompts file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.prompts import Prompts, prompts_of_file
from mtpc.lab.text.conversations import read_conversations

KINDS = {"source": "code"}  # categories of conversations that get another name; the others keep theirs
# The categories of Spec-Bench's first group; each of its other groups is one category.
MT_BENCH = ("coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem", "writing")


class Question(NamedTuple):
    """A prompt with its category.

    Attributes:
        kind: Prompt category.
        tokens: Token ids, in the target's chat template.
    """

    kind: str
    tokens: list[int]


def read_questions(data: Path | None, file: Path, target: Path, count: int) -> list[Question]:
    """Return the first prompts of each category.

    Args:
        data: Folder of conversations, whose held-out questions are the prompts; None to read ``file``.
        file: Prompts file.
        target: Folder of the target.
        count: Largest number of prompts of each category.

    Raises:
        MTPCError: The folder has no held-out question, or as `mtpc.lab.evaluation.prompts.prompts_of_file`.
    """
    if data is not None:
        conversations = (one for one in read_conversations(data) if one.heldout)
        questions = [Question(KINDS.get(one.kind, one.kind), list(one.tokens[: one.start])) for one in conversations]
        if not questions:
            raise MTPCError(f"--data is {data}, but none of its questions is held out from training.")
    else:
        prompts = prompts_of_file(file, target, sys.maxsize)
        questions = [Question(kind, tokens) for kind, asked in groups(prompts.by_kind).items() for tokens in asked]
    kinds = sorted({question.kind for question in questions})
    return [question for kind in kinds for question in of_kind(questions, kind)[:count]]


def prompts_of_files(files: Sequence[Path], target: Path, count: int) -> Prompts:
    """Read several prompts files; of a category in two of them, the later file's prompts are used.

    See `mtpc.lab.evaluation.prompts.prompts_of_file`.
    """
    read = [prompts_of_file(file, target, count) for file in files]
    by_kind = {kind: asked for prompts in read for kind, asked in prompts.by_kind.items()}
    return Prompts(by_kind, stop_at_end=all(prompts.stop_at_end for prompts in read))


def groups(by_kind: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """Merge the categories of MT-bench into one, if all of them are there; it takes a prompt of each in turn."""
    if not by_kind.keys() >= set(MT_BENCH):
        return by_kind
    turns = zip_longest(*(by_kind[kind] for kind in MT_BENCH))
    together = [question for turn in turns for question in turn if question is not None]
    return {"MT-bench": together} | {kind: asked for kind, asked in by_kind.items() if kind not in MT_BENCH}


def of_kind(questions: Iterable[Question], kind: str) -> list[Question]:
    """Return the prompts of one category."""
    return [question for question in questions if question.kind == kind]


def asked(questions: Iterable[Question]) -> Prompts:
    """Return the prompts by category."""
    by_kind: dict[str, list[list[int]]] = {}
    for question in questions:
        by_kind.setdefault(question.kind, []).append(question.tokens)
    return Prompts(by_kind)
