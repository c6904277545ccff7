"""What an engine's user says of the draft vocabulary, checked; each error is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpc.declared import shown
from mtpc.errors import MTPCError
from mtpc.json_file import is_there
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.vocabularies import NONE, DraftVocabularies, VocabularySettings

OWN_FILE = "vocabulary.json"  # of a drafter directory: used unless the settings say otherwise
OWN_SIZE = 8192  # tokens drafted from of that file, likewise
DIGITS = 20  # of a size; no vocabulary has as many tokens
KEYS = ("vocabulary", "size", "language")


def parse_settings(values: Mapping[str, Any], folder: Path) -> tuple[Path, VocabularySettings] | None:
    """The file of rankings and how it is used; None where drafts are of the whole vocabulary.

    values: "vocabulary", a file that `mtpc.vocabulary.formats.read_rankings` reads, by default the drafter's own if it
    has one; "size", a whole number, also in digits, by default all tokens that the file lists, of the drafter's own
    `OWN_SIZE`; "language", see `VocabularySettings`.  folder: the drafter directory.

    Errors: `MTPCError` for an unknown key, a value of the wrong type, or settings without a file to apply them to.
    """
    for key, value in values.items():
        if key not in KEYS:
            raise MTPCError(f"the draft vocabulary has no setting {key!r}; there are {', '.join(KEYS)}.")
        if key != "size" and (not isinstance(value, str | Path) or not str(value)):
            raise MTPCError(f"the draft vocabulary's setting {key!r} must be a string, but is {value!r}.")
    own = Path(folder) / OWN_FILE
    named = "vocabulary" in values
    path = Path(values["vocabulary"]) if named else own
    size = _size(values["size"]) if "size" in values else None if named else OWN_SIZE
    settings = VocabularySettings(size, **{key: value for key, value in values.items() if key == "language"})
    if settings.language == NONE or not (values or is_there(own)):
        return None
    if not named and not is_there(own):
        raise MTPCError(f"the draft vocabulary's settings name no file, and there is no {own}.")
    return path, settings


def _size(value: Any) -> int:
    """Errors: `MTPCError` for what is no whole number."""
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < DIGITS
    if type(value) is not int and not digits:
        raise MTPCError(f"the size of the draft vocabulary must be a whole number, but is {shown(value)}.")
    return int(value)


def open_vocabularies(values: Mapping[str, Any], folder: Path, vocab_size: int) -> DraftVocabularies | None:
    """The draft vocabularies that the settings ask for, of a target with so many tokens; None: the whole vocabulary.

    Errors: `MTPCError`, see `parse_settings`, `read_rankings` and `DraftVocabularies`.
    """
    parsed = parse_settings(values, folder)
    if parsed is None:
        return None
    path, settings = parsed
    rankings = read_rankings(path, vocab_size)
    try:
        return DraftVocabularies(rankings, settings)
    except MTPCError as error:
        raise MTPCError(f"{path}: {error}") from None
