"""What the target is asked to go on with: held-out text of a corpus, held-out questions, or a file, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.chat_template import load_tokenizer
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.text.prompts import read_prompts

PROMPT_LENGTH = 128  # tokens of a prompt out of a corpus
PROMPTS, QUESTIONS = 64, 16  # of each kind, unless the user says otherwise
OTHER = "other"  # the kind of a prompt in a file that does not name its own


@dataclass(frozen=True)
class Prompts:
    """Token ids of prompts by kind.

    stop_at_end: whether the target ends what it writes after them itself, as it ends an answer.
    """

    by_kind: dict[str, list[list[int]]] = field(default_factory=dict)
    stop_at_end: bool = True

    def end_tokens(self, target: FrozenTarget) -> frozenset[int]:
        """The tokens that end what the target writes."""
        return target.end_tokens if self.stop_at_end else frozenset()


def corpus_prompts(corpus: Corpus, count: int = PROMPTS, length: int = PROMPT_LENGTH) -> Prompts:
    """So many prompts of each kind of text, evenly spaced over the held-out split, int64 [count, length] each.

    Errors: `MTPCError` for a kind with less text than a prompt.
    """
    by_kind = {}
    for kind in corpus.kinds():
        tokens = corpus.heldout(kind)
        if len(tokens) <= length:
            raise MTPCError(f"{corpus.folder} holds {len(tokens)} tokens of {kind}, but a prompt has {length}.")
        starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
        by_kind[kind] = [tokens[start : start + length].tolist() for start in starts]
    return Prompts(by_kind, stop_at_end=False)


def heldout_questions(conversations: Sequence[Conversation], count: int = QUESTIONS) -> Prompts:
    """The first questions of each kind that are held out from training."""
    heldout = [each for each in conversations if each.heldout]
    by_kind = {}
    for kind in sorted({conversation.kind for conversation in heldout}):
        asked = [list(each.tokens[: each.start]) for each in heldout if each.kind == kind]
        by_kind[kind] = asked[:count]
    return Prompts(by_kind)


def prompts_of_file(file: Path, target: Path, count: int = QUESTIONS) -> Prompts:
    """The first prompts of each "kind" of a JSON Lines file, with the field "text" or "user".

    What a user says is put into the chat template of the target, a model folder; text is gone on with as it is.

    Errors: as `mtpc.lab.text.prompts.read_prompts`.
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
    """Errors: `MTPCError` where there is none, one after which no drafter can draft, or one of another target."""
    if not any(prompts.by_kind.values()):
        raise MTPCError("there is no held-out text to score drafters on: distil more, or name another file.")
    if any(len(prompt) < 2 for of_kind in prompts.by_kind.values() for prompt in of_kind):
        raise MTPCError("every prompt must have at least two tokens.")
    if any(max(prompt) >= vocab_size for of_kind in prompts.by_kind.values() for prompt in of_kind):
        raise MTPCError(f"the prompts hold tokens beyond the target's vocabulary of {vocab_size}.")
