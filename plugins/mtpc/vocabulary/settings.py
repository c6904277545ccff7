"""The user's settings of the draft vocabulary; each error is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, validated
from mtpc.files.json_file import is_there
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.template import read_template
from mtpc.vocabulary.vocabularies import AUTO, NONE, DraftVocabularies, VocabularySettings

CHECKPOINT_FILE = "vocabulary.json"  # in a drafter checkpoint: used unless the user names another file
CHECKPOINT_SIZE = 8192  # tokens per language of that file, unless the user sets a size
MAX_SIZE = 1 << 24  # above every vocabulary


class VocabularyChoice(Strict):
    """The choice of a draft vocabulary.

    Attributes:
        vocabulary: A file of rankings by language (see `mtpc.vocabulary.formats`); without it, the checkpoint's
            ``vocabulary.json`` if there is one.
        size: Tokens per language; without it, all tokens of the file, or of the checkpoint's own file the first 8,192.
        language: A language of the file for all requests, "auto" for each request's own, or "none" for the whole
            vocabulary.
    """

    vocabulary: Annotated[str, Field(min_length=1)] | None = None
    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = None
    language: Annotated[str, Field(min_length=1)] = AUTO


def parse_settings(values: Mapping[str, Any], folder: Path) -> tuple[Path, VocabularySettings] | None:
    """Return the file of rankings and how it is used; None: drafts use the whole vocabulary.

    Args:
        values: Settings as the user typed them; see `VocabularyChoice`.
        folder: The drafter checkpoint, which may contain ``vocabulary.json``.

    Raises:
        MTPCError: A value is not allowed, or there is no file of rankings to apply the settings to.
    """
    choice = validated(VocabularyChoice, dict(values), "the draft vocabulary")
    checkpoint_file = Path(folder) / CHECKPOINT_FILE
    if choice.language == NONE or not (values or is_there(checkpoint_file)):
        return None
    if choice.vocabulary is not None:
        return Path(choice.vocabulary), VocabularySettings(choice.size, choice.language)
    if not is_there(checkpoint_file):
        raise MTPCError(f"the draft vocabulary's settings need a file of rankings: name one, or add {checkpoint_file}.")
    return checkpoint_file, VocabularySettings(choice.size, choice.language)


def open_vocabularies(
    values: Mapping[str, Any], folder: Path, vocab_size: int, tokenizer: str | None = None
) -> DraftVocabularies | None:
    """Return the draft vocabularies that the settings choose; None: drafts use the whole vocabulary.

    Args:
        values: Settings as the user typed them; see `VocabularyChoice`.
        folder: The drafter checkpoint.
        vocab_size: V of the target.
        tokenizer: Folder or name of the target's tokenizer, whose chat template is skipped in language detection.

    Raises:
        MTPCError: The settings are wrong, or the file does not fit them or the target.
    """
    parsed = parse_settings(values, folder)
    if parsed is None:
        return None
    path, settings = parsed
    rankings = read_rankings(path, vocab_size)
    chosen = rankings.languages.values() if settings.language == AUTO else [rankings.languages.get(settings.language)]
    is_ranked = all(ranking is not None and ranking.ranked for ranking in chosen)
    if settings.size is None and not values.get("vocabulary") and is_ranked:
        settings = VocabularySettings(min(CHECKPOINT_SIZE, vocab_size), settings.language)
    try:
        template = None if tokenizer is None or settings.language != AUTO else read_template(tokenizer)
        return DraftVocabularies(rankings, settings, template)
    except MTPCError as error:
        raise MTPCError(f"{path}: {error}") from None
