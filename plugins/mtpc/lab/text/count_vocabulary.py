"""Counts the tokens of texts by language, for `mtpc vocab build`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from mtpc.errors import MTPCError
from mtpc.lab.text.conversations import Conversation
from mtpc.vocabulary.ranking import Rankings, rank

# The languages of the kinds of conversations: those of `mtpc.lab.distill.topics`, and those that files of questions
# name.  Source code uses tokens of its own.
ENGLISH = ("chat", "document", "instruction", "question", "reasoning", "task", "writing")
LANGUAGES = {**dict.fromkeys(ENGLISH, "english"), "code": "code", "source": "code"}
CHARACTERS = 1 << 20  # of a file that are read at a time


def language_of(kind: str) -> str:
    """The language of a kind of conversation: its own name where it is not known otherwise."""
    return LANGUAGES.get(kind, kind)


def answers_by_language(conversations: Iterable[Conversation]) -> Iterator[tuple[str, Sequence[int]]]:
    """The tokens of each answer, as they were sampled, with their language."""
    return ((language_of(conversation.kind), conversation.answer_tokens) for conversation in conversations)


def file_tokens(path: Path, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
    """The tokens of a text file, piece by piece.

    Errors: `MTPCError` for a file that cannot be read as UTF-8.
    """
    try:
        with path.open(encoding="utf-8") as file:
            while lines := file.readlines(CHARACTERS):
                yield tokenizer("".join(lines), add_special_tokens=False).input_ids
    except (OSError, UnicodeDecodeError) as error:
        raise MTPCError(f"{path} cannot be read as text: {error}.") from None


def build_rankings(texts: Iterable[tuple[str, Sequence[int]]], vocab_size: int, always: Sequence[int] = ()) -> Rankings:
    """Rank the tokens of texts, each with its language.

    Errors: `MTPCError` where there is no text.
    """
    counts: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(vocab_size, dtype=np.int64))
    for language, tokens in texts:
        counts[language] += np.bincount(np.asarray(tokens, dtype=np.int64), minlength=vocab_size)
    return Rankings(vocab_size, {name: rank(counts[name]) for name in sorted(counts)}, tuple(always))


def coverage(
    rankings: Rankings, texts: Iterable[tuple[str, Sequence[int]]], sizes: Sequence[int]
) -> dict[str, dict[tuple[str, int], float]]:
    """Share of the tokens of each language's text that a draft vocabulary holds, by its language and size."""
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    for language, more in texts:
        tokens[language] += more
    cuts = {(name, size): rankings.cut(name, size) for name in rankings.languages for size in sizes}
    return {
        language: {cut: float(np.isin(text, ids).mean()) for cut, ids in cuts.items()}
        for language, text in sorted(tokens.items())
    }
