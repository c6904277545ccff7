"""What an engine's user says of the draft vocabulary; each error is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, declared
from mtpc.files.json_file import is_there
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.template import read_template
from mtpc.vocabulary.vocabularies import AUTO, NONE, DraftVocabularies, VocabularySettings

OWN_FILE = "vocabulary.json"  # of a drafter checkpoint: used unless the settings say otherwise
OWN_SIZE = 8192  # tokens drafted from of that file, likewise
MOST = 1 << 24  # tokens of any vocabulary


class VocabularyChoice(Strict):
    """The choice of a draft vocabulary.

    Attributes:
        vocabulary: A file of rankings by language (see `mtpc.vocabulary.formats`); without it, the checkpoint's
            ``vocabulary.json`` if there is one.
        size: Tokens per language; without it, all tokens of the file, or 8,192 of the checkpoint's own.
        language: A language of the file for all requests, "auto" for each request's own, or "none" for the whole
            vocabulary.
    """

    vocabulary: Annotated[str, Field(min_length=1)] | None = None
    size: Annotated[int, Field(ge=1, le=MOST)] | None = None
    language: Annotated[str, Field(min_length=1)] = AUTO


def parse_settings(values: Mapping[str, Any], folder: Path) -> tuple[Path, VocabularySettings] | None:
    """The file of rankings and how it is used; None where drafts are of the whole vocabulary.

    values: see `VocabularyChoice`.  folder: the drafter checkpoint.

    Errors: `MTPCError` for what the choice does not allow, or settings without a file to apply them to.
    """
    said = declared(VocabularyChoice, dict(values), "the draft vocabulary")
    own = Path(folder) / OWN_FILE
    if said.language == NONE or not (values or is_there(own)):
        return None
    if said.vocabulary is not None:
        return Path(said.vocabulary), VocabularySettings(said.size, said.language)
    if not is_there(own):
        raise MTPCError(f"the draft vocabulary's settings name no file, and there is no {own}.")
    return own, VocabularySettings(said.size or OWN_SIZE, said.language)


def open_vocabularies(
    values: Mapping[str, Any], folder: Path, vocab_size: int, tokenizer: str | None = None
) -> DraftVocabularies | None:
    """The draft vocabularies that the settings ask for, of a target with so many tokens; None: the whole vocabulary.

    tokenizer: the target's, by its folder or name, whose chat template tells nothing of a language.

    Errors: `MTPCError`, see `parse_settings`, `read_rankings` and `DraftVocabularies`.
    """
    parsed = parse_settings(values, folder)
    if parsed is None:
        return None
    path, settings = parsed
    rankings = read_rankings(path, vocab_size)
    try:
        template = None if tokenizer is None or settings.language != AUTO else read_template(tokenizer)
        return DraftVocabularies(rankings, settings, template)
    except MTPCError as error:
        raise MTPCError(f"{path}: {error}") from None
