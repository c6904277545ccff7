"""The draft vocabularies that a server drafts from: which tokens each holds, and how a request's is found."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch

from mtpc.errors import MTPCError
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import ALL, AUTO, NONE, Rankings
from mtpc.vocabulary.template import Template


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

    names: of their languages, and `ALL` after them where the language of each request is to be found.  ids: int64 [R]
    of each, its tokens, ascending, of ``vocab_size``.  detector: finds the number of a request's; None where there is
    but one.  template: the target's, see `LanguageDetector`.

    Errors: `MTPCError` for an unknown language or a size out of range.
    """

    def __init__(self, rankings: Rankings, settings: VocabularySettings, template: Template | None = None) -> None:
        if settings.language == NONE:
            raise MTPCError("language 'none' needs no draft vocabularies.")
        self.vocab_size, found = rankings.vocab_size, settings.language == AUTO
        names = tuple(rankings.languages) if found else (settings.language,)
        ids = tuple(torch.from_numpy(rankings.cut(name, settings.size)) for name in names)
        self.names, self.ids = ((*names, ALL), (*ids, torch.arange(rankings.vocab_size))) if found else (names, ids)
        self.detector = LanguageDetector(rankings, template) if found else None

    def together(self) -> DraftVocabularies | None:
        """Those of all languages as one, for all requests; None: that is all tokens, so nothing is gained."""
        one = copy(self)
        if self.detector is not None:
            one.names, one.ids = (" + ".join(self.names[:-1]),), (torch.cat(self.ids[:-1]).unique(),)
            one.detector = None
        return one if len(one.ids[0]) < self.vocab_size else None
