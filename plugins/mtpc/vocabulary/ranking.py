"""Tokens ranked by frequency, for each language, in one file; the number of drafted tokens is chosen when serving."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr

FORMAT_VERSION = 1
AUTO, NONE = "auto", "none"  # instead of a language: detect it for each request; draft from the whole vocabulary
ALL, UNION = "all", "together"  # vocabularies for requests that fit no language: all tokens; the union vocabulary


@dataclass(frozen=True)
class Ranking:
    """The tokens of one language, most frequent first.

    Attributes:
        tokens: Token ids.
        counts: Occurrences of each token; None: the source states the order only.
        ranked: Whether the order is meaningful; an unordered set can only be drafted as a whole.
    """

    tokens: tuple[int, ...]
    counts: tuple[int, ...] | None = None
    ranked: bool = True


@dataclass(frozen=True)
class Rankings:
    """The rankings of a target's vocabulary, by language.

    Attributes:
        vocab_size: V of the target.
        languages: Rankings by language name.
        always: Tokens of every draft vocabulary, such as the end-of-sequence token.

    Raises:
        MTPCError: A token is outside the vocabulary or listed twice, a language has no token, or its name is reserved.
    """

    vocab_size: int
    languages: dict[str, Ranking]
    always: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.languages:
            raise MTPCError("the rankings contain no language; at least one is needed.")
        for name, ranking in self.languages.items():
            if name in (AUTO, NONE, ALL, UNION) or not name.isprintable() or not name:
                reserved = ", ".join((AUTO, NONE, ALL, UNION))
                raise MTPCError(
                    f"a language cannot be named {short_repr(name)}: use printable text other than {reserved}."
                )
            if not ranking.tokens:
                raise MTPCError(f"the ranking of {name!r} contains no token, so nothing could be drafted.")
            self._check(f"the ranking of {name!r}", ranking.tokens)
            if ranking.counts is not None and len(ranking.counts) != len(ranking.tokens):
                raise MTPCError(
                    f"the ranking of {name!r} has {len(ranking.tokens)} tokens, but {len(ranking.counts)} counts."
                )
        self._check("the list of tokens that are always drafted", self.always)

    def _check(self, what: str, tokens: tuple[int, ...]) -> None:
        if any(type(token) is not int or not 0 <= token < self.vocab_size for token in tokens):
            raise MTPCError(f"{what} must contain only token ids from 0 to {self.vocab_size - 1}.")
        if len(set(tokens)) < len(tokens):
            raise MTPCError(f"{what} contains a token twice.")

    def cut(self, language: str, size: int | None) -> np.ndarray:
        """Return the draft vocabulary of a language.

        If the ranking has fewer tokens, those that other languages use most follow, then those with the lowest ids.
        Byte-pair encoding created the latter first because they are frequent.

        Args:
            language: Name of a ranking.
            size: Number of tokens; None: all that the ranking lists.

        Returns:
            Token ids, int64 [size], ascending.

        Raises:
            MTPCError: The language is unknown, the size is out of range, or the ranking has no order to cut.
        """
        if language not in self.languages:
            raise MTPCError(f"unknown language {language!r}; the file has {', '.join(self.languages)}.")
        ranking = self.languages[language]
        if not ranking.ranked or size is None:
            if size not in (None, len(ranking.tokens)):
                raise MTPCError(
                    f"the draft vocabulary {language!r} is an unordered set of {len(ranking.tokens)} tokens: "
                    f"its size cannot be {size}; leave the size out."
                )
            return np.array(sorted({*ranking.tokens, *self.always}), dtype=np.int64)
        if not len(self.always) <= size <= self.vocab_size or size < 1:
            raise MTPCError(
                f"the size of a draft vocabulary must be {max(1, len(self.always))} to {self.vocab_size} tokens, "
                f"not {size}."
            )
        order = np.array([*self.always, *ranking.tokens, *self._by_any_language(), *range(self.vocab_size)])
        _, first = np.unique(order, return_index=True)
        return np.sort(order[np.sort(first)[:size]]).astype(np.int64)

    def _by_any_language(self) -> list[int]:
        """Return tokens by their best rank in any ordered language."""
        best: dict[int, int] = {}
        for ranking in self.languages.values():
            for rank, token in enumerate(ranking.tokens if ranking.ranked else ()):
                best[token] = min(rank, best.get(token, rank))
        return sorted(best, key=lambda token: (best[token], token))

    def save(self, path: Path, facts: Mapping[str, Any]) -> None:
        """Write the rankings as JSON.

        Args:
            path: The file to write.
            facts: Provenance to store with them.
        """
        languages = {name: dataclasses.asdict(ranking) for name, ranking in self.languages.items()}
        values = {"version": FORMAT_VERSION, "vocab_size": self.vocab_size, "always": self.always}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**values, "languages": languages, "provenance": dict(facts)}) + "\n")


def rank(counts: np.ndarray) -> Ranking:
    """Rank the tokens that occurred, most frequent first; of equal counts, the lower id comes first.

    Args:
        counts: Occurrences of every token, int [V].

    Returns:
        The ranking with its counts.
    """
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    return Ranking(tuple(order.tolist()), tuple(counts[order].tolist()))
