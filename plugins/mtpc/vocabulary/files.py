"""Declared contents of draft vocabulary files: this project's format, and foreign JSON files and pickles."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from mtpc.files.config_model import Strict
from mtpc.vocabulary.ranking import FORMAT_VERSION

Token = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
MOST_LANGUAGES = 256


class RankingEntry(Strict):
    """A `mtpc.vocabulary.ranking.Ranking` as it is stored."""

    tokens: list[Token] = Field(min_length=1, fail_fast=True)
    counts: Annotated[list[Count], Field(fail_fast=True)] | None
    ranked: bool


class RankingsFile(Strict):
    """`mtpc.vocabulary.ranking.Rankings` as ``mtpc vocab build`` writes them."""

    version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    vocab_size: Token
    always: list[Token] = Field(fail_fast=True)
    languages: dict[str, RankingEntry] = Field(min_length=1, max_length=MOST_LANGUAGES)
    provenance: dict[str, Any]


class TokenList(RootModel[list[Token]]):
    """FR-Spec's format: token ids, most frequent first."""

    model_config = ConfigDict(strict=True)

    root: list[Token] = Field(min_length=1, fail_fast=True)


def _id(key: str) -> str:
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise ValueError(f"{key[:20]!r} is not a token id")
    return key


class TokenCounts(RootModel[list[tuple[str | int, int]]]):
    """Number of occurrences by token id: speculators' ``token_freq.pt``, or JSON, whose keys are strings."""

    model_config = ConfigDict(strict=True)

    root: list[tuple[Annotated[str, AfterValidator(_id)] | Token, Count]] = Field(min_length=1, fail_fast=True)
