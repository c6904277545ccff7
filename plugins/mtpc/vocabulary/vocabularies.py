"""The draft vocabularies that a server drafts from: which tokens each holds, and how a request's is found."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mtpc.errors import MTPCError
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import AUTO, NONE, Rankings


@dataclass(frozen=True)
class VocabularySettings:
    """What is drafted from.

    size: tokens of each draft vocabulary; None: all that a ranking lists.  language: "auto" finds it for each request,
    "none" drafts from the whole vocabulary, any other name fixes it.
    """

    size: int | None = None
    language: str = AUTO


class DraftVocabularies:
    """The draft vocabularies of requests, by number.

    names: of their languages.  ids: int64 [R] of each, its tokens, ascending.  detector: finds the number of a
    request's; None where there is but one.

    Errors: `MTPCError` for an unknown language or a size out of range.
    """

    def __init__(self, rankings: Rankings, settings: VocabularySettings) -> None:
        if settings.language == NONE:
            raise MTPCError("language 'none' needs no draft vocabularies.")
        names = tuple(rankings.languages) if settings.language == AUTO else (settings.language,)
        self.names = names
        self.ids = tuple(torch.from_numpy(rankings.cut(name, settings.size)) for name in names)
        self.detector = LanguageDetector(rankings) if len(names) > 1 else None
