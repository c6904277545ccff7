"""Token counts of texts by language, for `mtpc vocab build`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from mtpc.errors import MTPCError
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.text.prompts import SHIPPED, read_prompts
from mtpc.vocabulary.ranking import Rankings, rank

# Languages of the kinds of conversations: of `mtpc.lab.distill.topics`, and of common files of questions. Source code
# counts as a language.
ENGLISH = ("chat", "document", "instruction", "question", "reasoning", "task", "writing")
LANGUAGES = {**dict.fromkeys(ENGLISH, "english"), "code": "code", "source": "code"}
CHARACTERS = 1 << 20  # characters of a file that are read at a time


def language_of(kind: str) -> str:
    """Return the language of a kind of conversation, or the kind itself if it is unknown."""
    return LANGUAGES.get(kind, kind)


def answers_by_language(conversations: Iterable[Conversation]) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the language and the sampled tokens of each answer.

    Args:
        conversations: Conversations of the target.
    """
    return ((language_of(conversation.kind), conversation.answer_tokens) for conversation in conversations)


def file_tokens(path: Path, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
    """Tokenize a text file piece by piece.

    Args:
        path: UTF-8 text file.
        tokenizer: Tokenizer of the target.

    Yields:
        Token ids of consecutive pieces.

    Raises:
        MTPCError: The file cannot be read as UTF-8.
    """
    try:
        with path.open(encoding="utf-8") as file:
            while lines := file.readlines(CHARACTERS):
                yield tokenizer("".join(lines), add_special_tokens=False).input_ids
    except (OSError, UnicodeDecodeError) as error:
        raise MTPCError(f"{path} cannot be read as text: {error}.") from None


def text_tokens(files: Sequence[Path] | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens of text files one after the other, or those of the included prompts.

    Args:
        files: UTF-8 text files; None or empty: the included prompts.
        tokenizer: Tokenizer of the target.

    Raises:
        MTPCError: See `file_tokens`.
    """
    if files:
        pieces = [piece for file in files for piece in file_tokens(file, tokenizer)]
    else:
        texts = [str(one.prompt) for one in read_prompts(SHIPPED)]
        pieces = tokenizer(texts, add_special_tokens=False).input_ids
    return [each for piece in pieces for each in piece]


def build_rankings(texts: Iterable[tuple[str, Sequence[int]]], vocab_size: int, always: Sequence[int] = ()) -> Rankings:
    """Rank the tokens of each language by frequency.

    Args:
        texts: Language and token ids of each text.
        vocab_size: Size of the target's vocabulary. Tokens that its tokenizer has beyond it are left out.
        always: Tokens that every draft vocabulary holds.

    Returns:
        Rankings by language.

    Raises:
        MTPCError: There is no text.
    """
    counts: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(vocab_size, dtype=np.int64))
    for language, tokens in texts:
        ids = np.asarray(tokens, dtype=np.int64)
        counts[language] += np.bincount(ids[ids < vocab_size], minlength=vocab_size)
    return Rankings(vocab_size, {name: rank(counts[name]) for name in sorted(counts)}, tuple(always))


def shortage_notes(rankings: Rankings, size: int) -> list[str]:
    """Return a sentence for each language with fewer distinct tokens than a draft vocabulary holds.

    Such a draft vocabulary is filled with tokens of other languages, see `Rankings.cut`.

    Args:
        rankings: Ranked tokens by language.
        size: Size of the draft vocabulary.
    """
    counts = {name: len(ranking.tokens) for name, ranking in rankings.languages.items()}
    return [
        f"{name}: only {count:,} distinct tokens in its text, so the other {size - count:,} of {size:,} are not its "
        "own: collect more text."
        for name, count in counts.items()
        if count < size
    ]


def coverage(
    rankings: Rankings, texts: Iterable[tuple[str, Sequence[int]]], sizes: Sequence[int]
) -> dict[str, dict[tuple[str, int], float]]:
    """Compute the share of text tokens that draft vocabularies cover.

    Args:
        rankings: Ranked tokens by language.
        texts: Language and token ids of each text.
        sizes: Sizes of the draft vocabularies.

    Returns:
        Share, in [0, 1], by language of the text, then by language and size of the draft vocabulary.
    """
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    for language, of_text in texts:
        tokens[language] += of_text
    cuts = {(name, size): rankings.cut(name, size) for name in rankings.languages for size in sizes}
    return {
        language: {cut: float(np.isin(text, ids).mean()) for cut, ids in cuts.items()}
        for language, text in sorted(tokens.items())
    }
