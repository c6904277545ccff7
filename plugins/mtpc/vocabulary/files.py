"""What files of draft vocabularies hold, declared: this project's, and those of others that are JSON or a pickle."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from mtpc.files.config_model import Strict
from mtpc.vocabulary.ranking import FORMAT_VERSION

Token = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
MOST_LANGUAGES = 256


class OwnLanguage(Strict):
    """A `mtpc.vocabulary.ranking.Ranking` as it is written."""

    tokens: list[Token] = Field(min_length=1, fail_fast=True)
    counts: Annotated[list[Count], Field(fail_fast=True)] | None
    ranked: bool


class OwnFile(Strict):
    """`mtpc.vocabulary.ranking.Rankings` as `mtpc vocab build` writes them."""

    version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    vocab_size: Token
    always: list[Token] = Field(fail_fast=True)
    languages: dict[str, OwnLanguage] = Field(min_length=1, max_length=MOST_LANGUAGES)
    provenance: dict[str, Any]


class TokenList(RootModel[list[Token]]):
    """FR-Spec: ids, most frequent first."""

    model_config = ConfigDict(strict=True)

    root: list[Token] = Field(min_length=1, fail_fast=True)


def _id(key: str) -> str:
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise ValueError(f"{key[:20]!r} is no token's id")
    return key


class TokenCounts(RootModel[list[tuple[str | int, int]]]):
    """How often each token occurred, by its id: speculators' token_freq.pt, or JSON, whose keys are strings."""

    model_config = ConfigDict(strict=True)

    root: list[tuple[Annotated[str, AfterValidator(_id)] | Token, Count]] = Field(min_length=1, fail_fast=True)
