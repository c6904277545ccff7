"""Settings of drafting in ``--speculative-token-map``: SGLang has no other setting for those of a plugin."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import Field

from mtpc.draft import MAX_DRAFTS, MAX_TREE_NODES
from mtpc.errors import MTPCError
from mtpc.files.config_model import keys_of, validated
from mtpc.serving.settings import DraftSettings

NAME = "--speculative-token-map"


class TokenMap(DraftSettings):
    """Settings of drafting in SGLang, written as ``FILE?key=value&key=value``.

    Attributes:
        borrow: Borrowed nodes of a tree (full tree attention), see `mtpc.parallel.borrow`.
        copy_tokens: Draft tokens of each request in a step where prompt lookup continues the drafts of SGLang's own
            drafter, see `sglang_mtpc.longer_copies`; None: there are no such steps.
    """

    borrow: Annotated[int, Field(ge=0, le=MAX_TREE_NODES)] = 0
    copy_tokens: Annotated[int, Field(ge=2, le=MAX_DRAFTS)] | None = None


def vocabulary_values(token_map: str | None) -> dict[str, Any]:
    """Return the settings of the draft vocabulary, for `mtpc.vocabulary.settings.open_vocabularies`.

    Args:
        token_map: Value of ``--speculative-token-map``, for example ``FILE?size=8192&language=auto``.

    Returns:
        The settings that are set.

    Raises:
        MTPCError: See `read`.
    """
    return read(token_map).vocabulary_values


def copies(token_map: str | None, always: bool = False) -> bool:
    """Return whether prompt lookup is enabled (``?copy=true``).

    Args:
        token_map: Value of ``--speculative-token-map``.
        always: Whether the drafter has no other drafts.

    Returns:
        Whether it is enabled.

    Raises:
        MTPCError: See `read` and `DraftSettings.copies`.
    """
    return read(token_map).copies(always, NAME)


def read(token_map: str | None) -> TokenMap:
    """Parse all settings; the part after the question mark is a query whose values are JSON or strings.

    Args:
        token_map: Value of ``--speculative-token-map``.

    Returns:
        The settings.

    Raises:
        MTPCError: It is no query, or a setting is unknown, repeated or wrong.
    """
    file, _, query = str(token_map or "").partition("?")
    key, equals, _ = (settings := file.rpartition("/")[2]).partition("=")
    if not query and equals and key in keys_of(TokenMap):
        raise MTPCError(f"{NAME} is {token_map!r}, but settings follow a question mark: write '?{settings}'.")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise MTPCError(f"{NAME} is {token_map!r}, but it must be FILE?size=NUMBER&language=NAME.") from None
    values = {key: _value(text) for key, text in pairs}
    if len(values) < len(pairs) or "vocabulary" in values:
        raise MTPCError(f"{NAME} is {token_map!r}, but it must begin with a file and contain each setting once.")
    return validated(TokenMap, values | ({"vocabulary": file} if file else {}), NAME)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
