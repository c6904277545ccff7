"""SGLang's ``--speculative-token-map``, read as settings of drafting: SGLang has no other place for a plugin's own."""

from __future__ import annotations

from urllib.parse import parse_qsl

from mtpc.errors import MTPCError

COPY = "copy"


def vocabulary_values(token_map: str | None) -> dict[str, str]:
    """The settings of the draft vocabulary: a file, ``FILE?size=8192&language=auto``, or less.

    They are what `mtpc.vocabulary.settings.open_vocabularies` takes.

    Errors: `MTPCError` where what follows the question mark is no query.
    """
    return {key: value for key, value in _values(token_map).items() if key != COPY}


def copies(token_map: str | None, always: bool = False) -> bool:
    """Whether drafts are copied from the request's own text: ``?copy=true``.

    always: whether the drafter does nothing else.

    Errors: `MTPCError` as `vocabulary_values`, or where it is neither true nor false, or false for such a drafter.
    """
    value = _values(token_map).get(COPY, "true" if always else "false")
    if value not in ("true", "false"):
        raise MTPCError(f"the {COPY!r} of --speculative-token-map must be true or false, but is {value!r}.")
    if always and value == "false":
        raise MTPCError(f"the {COPY!r} of --speculative-token-map is false, but the drafter does nothing else.")
    return value == "true"


def _values(token_map: str | None) -> dict[str, str]:
    file, _, query = (token_map or "").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but is to be FILE?size=NUMBER&language=NAME."
        ) from None
    values = dict(pairs)
    if len(values) < len(pairs) or "vocabulary" in values:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but it must name a file first and each setting once."
        )
    return values | ({"vocabulary": file} if file else {})
