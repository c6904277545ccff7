"""SGLang's ``--speculative-token-map``, read as settings of drafting: SGLang has no other place for a plugin's own."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import Field

from mtpc.draft import MOST_NODES
from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.vocabulary.settings import VocabularyChoice

COPY, COST = "copy", "step_cost"


class TokenMap(VocabularyChoice):
    """What it says.

    copy_: whether drafts are copied; None: where the drafter does nothing else.  borrow: nodes of a tree that are
    borrowed, see `mtpc.parallel.borrow`.  adaptive: whether drafts are as long as is worth it, outside of CUDA graphs.
    step_cost: what steps cost; None: timed while the server starts.
    """

    copy_: Annotated[bool | None, Field(alias=COPY)] = None
    borrow: Annotated[int, Field(ge=0, le=MOST_NODES)] = 0
    adaptive: bool = True
    step_cost: StepCost | None = None


def vocabulary_values(token_map: str | None) -> dict[str, Any]:
    """The settings of the draft vocabulary: a file, ``FILE?size=8192&language=auto``, or less.

    They are what `mtpc.vocabulary.settings.open_vocabularies` takes.

    Errors: `MTPCError`, see `read`.
    """
    return read(token_map).model_dump(include=set(VocabularyChoice.model_fields), exclude_unset=True)


def copies(token_map: str | None, always: bool = False) -> bool:
    """Whether drafts are copied from the request's own text: ``?copy=true``.

    always: whether the drafter does nothing else.

    Errors: `MTPCError` as `read`, or where it is false for such a drafter.
    """
    copy = read(token_map).copy_
    if always and copy is False:
        raise MTPCError(f"the {COPY!r} of --speculative-token-map is false, but the drafter does nothing else.")
    return always if copy is None else copy


def read(token_map: str | None) -> TokenMap:
    """All of it; what follows the question mark is a query, whose values are JSON, or else strings.

    Errors: `MTPCError` where it is no query, or says what is not allowed.
    """
    file, _, query = str(token_map or "").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but is to be FILE?size=NUMBER&language=NAME."
        ) from None
    values = {key: _value(text) for key, text in pairs}
    if len(values) < len(pairs) or "vocabulary" in values:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but it must name a file first and each setting once."
        )
    return declared(TokenMap, values | ({"vocabulary": file} if file else {}), "--speculative-token-map")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
