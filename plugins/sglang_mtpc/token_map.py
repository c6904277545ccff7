"""SGLang's ``--speculative-token-map``, read as settings of drafting: SGLang has no other place for a plugin's own."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import Field

from mtpc.draft import MAX_TREE_NODES
from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.serving.settings import DraftSettings

NAME = "--speculative-token-map"


class TokenMap(DraftSettings):
    """What it says.

    Attributes:
        borrow: Borrowed nodes of a tree (full tree attention), see `mtpc.parallel.borrow`.
    """

    borrow: Annotated[int, Field(ge=0, le=MAX_TREE_NODES)] = 0


def vocabulary_values(token_map: str | None) -> dict[str, Any]:
    """The settings of the draft vocabulary: a file, ``FILE?size=8192&language=auto``, or less.

    They are what `mtpc.vocabulary.settings.open_vocabularies` takes.

    Errors: `MTPCError`, see `read`.
    """
    return read(token_map).vocabulary_values


def copies(token_map: str | None, always: bool = False) -> bool:
    """Whether drafts are copied from the request's own text (``?copy=true``), see `DraftSettings.copies`."""
    return read(token_map).copies(always, NAME)


def read(token_map: str | None) -> TokenMap:
    """All of it; what follows the question mark is a query, whose values are JSON, or else strings.

    Errors: `MTPCError` where it is no query, or says what is not allowed.
    """
    file, _, query = str(token_map or "").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise MTPCError(f"{NAME} is {token_map!r}, but is to be FILE?size=NUMBER&language=NAME.") from None
    values = {key: _value(text) for key, text in pairs}
    if len(values) < len(pairs) or "vocabulary" in values:
        raise MTPCError(f"{NAME} is {token_map!r}, but it must name a file first and each setting once.")
    return declared(TokenMap, values | ({"vocabulary": file} if file else {}), NAME)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
