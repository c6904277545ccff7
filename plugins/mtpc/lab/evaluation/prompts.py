"""Prompts of an evaluation, by kind: held-out text of a corpus, held-out questions, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mtpc.errors import MTPCError
from mtpc.lab.targets.folder import check_folder
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.chat_template import load_tokenizer
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.text.prompts import read_prompts

PROMPT_LENGTH = 128  # tokens of a prompt from a corpus
PROMPTS, QUESTIONS = 64, 16  # default number of each kind
OTHER = "other"  # kind of a prompt in a file that does not name one


@dataclass(frozen=True)
class Prompts:
    """Prompts by kind.

    Attributes:
        by_kind: Token ids of each prompt.
        stop_at_end: Whether the output stops at an end token, as an answer does.
    """

    by_kind: dict[str, list[list[int]]] = field(default_factory=dict)
    stop_at_end: bool = True

    def end_tokens(self, target: FrozenTarget) -> frozenset[int]:
        """Return the tokens that end the target's output."""
        return target.end_tokens if self.stop_at_end else frozenset()


def corpus_prompts(corpus: Corpus, target: Path, count: int = PROMPTS, length: int = PROMPT_LENGTH) -> Prompts:
    """Take evenly spaced prompts from the held-out text of a corpus.

    Args:
        corpus: Corpus of a byte-level target.
        target: Folder of the target. Prompts take half of its positions at most.
        count: Prompts of each kind of text.
        length: Tokens of a prompt.

    Returns:
        Prompts by kind of text. Output after them does not stop at an end token.

    Raises:
        MTPCError: A kind has less held-out text than one prompt.
    """
    positions = check_folder(target).get("max_position_embeddings")
    if isinstance(positions, int):
        length = min(length, positions // 2)
    by_kind = {}
    for kind in corpus.kinds():
        tokens = corpus.heldout(kind)
        if len(tokens) <= length:
            raise MTPCError(
                f"{corpus.folder} holds out {len(tokens)} tokens of {kind}, but a prompt has {length}; "
                "use a larger corpus."
            )
        starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
        by_kind[kind] = [tokens[start : start + length].tolist() for start in starts]
    return Prompts(by_kind, stop_at_end=False)


def heldout_questions(conversations: Sequence[Conversation], count: int = QUESTIONS) -> Prompts:
    """Take the first held-out questions of each kind.

    Args:
        conversations: Conversations of the target.
        count: Largest number of questions of each kind.

    Returns:
        Questions in the target's chat template, by kind.
    """
    heldout = [each for each in conversations if each.heldout]
    by_kind = {}
    for kind in sorted({conversation.kind for conversation in heldout}):
        questions = [list(each.tokens[: each.start]) for each in heldout if each.kind == kind]
        by_kind[kind] = questions[:count]
    return Prompts(by_kind)


def prompts_of_file(file: Path, target: Path, count: int = QUESTIONS) -> Prompts:
    """Take the first prompts of each kind from a JSON Lines file.

    Args:
        file: File whose lines have the field "text" (text to continue) or "user" (a user turn), and optionally "kind".
        target: Folder of the target, whose chat template is applied to user turns.
        count: Largest number of prompts of each kind.

    Returns:
        Prompts by kind. Output after user turns stops at an end token.

    Raises:
        MTPCError: As `mtpc.lab.text.prompts.read_prompts`.
    """
    prompts = read_prompts(file, target)
    text = any(isinstance(prompt, str) for prompt, _ in prompts)
    tokenizer = load_tokenizer(target)
    by_kind: dict[str, list[list[int]]] = {}
    for prompt, kind in prompts:
        tokens: list[int] = prompt if isinstance(prompt, list) else tokenizer(prompt).input_ids
        by_kind.setdefault(OTHER if kind is None else kind, []).append(tokens)
    return Prompts({kind: by_kind[kind][:count] for kind in sorted(by_kind)}, stop_at_end=not text)


def check_prompts(prompts: Prompts, vocab_size: int) -> None:
    """Check that drafters of a target can be evaluated on prompts.

    Args:
        prompts: Prompts to check.
        vocab_size: Size of the target's vocabulary.

    Raises:
        MTPCError: There is no prompt, one is shorter than two tokens, or one has tokens of another target.
    """
    if not any(prompts.by_kind.values()):
        raise MTPCError(
            "there is no held-out text to score drafters on; generate more with `mtpc distill`, or name another file."
        )
    if any(len(prompt) < 2 for of_kind in prompts.by_kind.values() for prompt in of_kind):
        raise MTPCError("every prompt must have at least two tokens.")
    if any(max(prompt) >= vocab_size for of_kind in prompts.by_kind.values() for prompt in of_kind):
        raise MTPCError(
            f"the prompts hold tokens beyond the target's vocabulary of {vocab_size}; use prompts of this target."
        )
