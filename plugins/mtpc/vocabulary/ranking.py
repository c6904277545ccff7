"""Tokens ranked by frequency, for each language, in one file; how many of them are drafted is chosen when serving."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtpc.errors import MTPCError
from mtpc.files.config_model import shown

FORMAT_VERSION = 1
AUTO, NONE = "auto", "none"  # in place of a language: find it for each request, draft from the whole vocabulary
ALL, TOGETHER = "all", "together"  # what requests draft from that no language suits: all tokens, or all languages'


@dataclass(frozen=True)
class Ranking:
    """The tokens of one language, most frequent first.

    counts: how often each occurred; None where the source says no more than the order.  ranked: whether the order
    means anything; the tokens of an unordered set can be drafted only all together.
    """

    tokens: tuple[int, ...]
    counts: tuple[int, ...] | None = None
    ranked: bool = True


@dataclass(frozen=True)
class Rankings:
    """The rankings of a target's vocabulary by language.

    always: tokens that are part of every draft vocabulary, such as the one that ends an answer.

    Errors: `MTPCError` for a token outside the vocabulary, one that is listed twice, a language without a token, or one
    that is named like a setting.
    """

    vocab_size: int
    languages: dict[str, Ranking]
    always: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.languages:
            raise MTPCError("there is no language to rank tokens for.")
        for name, ranking in self.languages.items():
            if name in (AUTO, NONE, ALL, TOGETHER) or not name.isprintable() or not name:
                raise MTPCError(f"no language can be called {shown(name)}.")
            if not ranking.tokens:
                raise MTPCError(f"the ranking of {name!r} holds no token, so nothing could be drafted.")
            self._check(f"the ranking of {name!r}", ranking.tokens)
            if ranking.counts is not None and len(ranking.counts) != len(ranking.tokens):
                raise MTPCError(
                    f"the ranking of {name!r} has {len(ranking.tokens)} tokens, but {len(ranking.counts)} counts."
                )
        self._check("the list of tokens that are always drafted", self.always)

    def _check(self, what: str, tokens: tuple[int, ...]) -> None:
        if any(type(token) is not int or not 0 <= token < self.vocab_size for token in tokens):
            raise MTPCError(f"{what} must hold token ids from 0 to {self.vocab_size - 1} and nothing else.")
        if len(set(tokens)) < len(tokens):
            raise MTPCError(f"{what} holds a token twice.")

    def cut(self, language: str, size: int | None) -> np.ndarray:
        """The draft vocabulary of a language: int64 [size], ascending, all its tokens for None.

        Where the text did not hold so many, those follow that other languages use most, then those of the lowest ids,
        which a byte-pair encoding made first because they are frequent.

        Errors: `MTPCError` for an unknown language, a size out of range, or a part of an unordered set.
        """
        if language not in self.languages:
            raise MTPCError(f"unknown language {language!r}; there are {', '.join(self.languages)}.")
        ranking = self.languages[language]
        if not ranking.ranked or size is None:
            if size not in (None, len(ranking.tokens)):
                raise MTPCError(
                    f"the draft vocabulary {language!r} is an unordered set of {len(ranking.tokens)} tokens, "
                    f"of which {size} cannot be chosen."
                )
            return np.array(sorted({*ranking.tokens, *self.always}), dtype=np.int64)
        if not len(self.always) <= size <= self.vocab_size or size < 1:
            raise MTPCError(
                f"a draft vocabulary holds {max(1, len(self.always))} to {self.vocab_size} tokens, not {size}."
            )
        order = np.array([*self.always, *ranking.tokens, *self._by_any_language(), *range(self.vocab_size)])
        _, first = np.unique(order, return_index=True)
        return np.sort(order[np.sort(first)[:size]]).astype(np.int64)

    def _by_any_language(self) -> list[int]:
        """Tokens by their best rank in any ordered language."""
        best: dict[int, int] = {}
        for ranking in self.languages.values():
            for rank, token in enumerate(ranking.tokens if ranking.ranked else ()):
                best[token] = min(rank, best.get(token, rank))
        return sorted(best, key=lambda token: (best[token], token))

    def save(self, path: Path, facts: Mapping[str, Any]) -> None:
        """Write the file; ``facts`` say where it comes from."""
        languages = {name: dataclasses.asdict(ranking) for name, ranking in self.languages.items()}
        values = {"version": FORMAT_VERSION, "vocab_size": self.vocab_size, "always": self.always}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**values, "languages": languages, "provenance": dict(facts)}) + "\n")


def rank(counts: np.ndarray) -> Ranking:
    """The tokens that occurred, most frequent first: counts int [V]; of equal counts, the lower id goes first."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    return Ranking(tuple(order.tolist()), tuple(counts[order].tolist()))
