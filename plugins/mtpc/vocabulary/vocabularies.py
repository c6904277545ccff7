"""The draft vocabularies that a server drafts from: which tokens each holds, and how a request's is found."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch

from mtpc.errors import MTPCError
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import ALL, AUTO, NONE, TOGETHER, Rankings
from mtpc.vocabulary.template import Template

FEWER = 0.5  # of all tokens: so many, or less, are worth a draft vocabulary of all languages together


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

    names: of their languages, and where the language of each request is to be found `TOGETHER`, if all languages are
    far fewer than all tokens, and `ALL` after them.  ids: int64 [R] of each, its tokens, ascending, of ``vocab_size``.
    detector: finds the number of a request's; None where there is but one.  template: the target's, see
    `LanguageDetector`.

    Errors: `MTPCError` for an unknown language or a size out of range.
    """

    def __init__(self, rankings: Rankings, settings: VocabularySettings, template: Template | None = None) -> None:
        if settings.language == NONE:
            raise MTPCError("language 'none' needs no draft vocabularies.")
        self.vocab_size, found = rankings.vocab_size, settings.language == AUTO
        self.names = tuple(rankings.languages) if found else (settings.language,)
        self.ids = tuple(torch.from_numpy(rankings.cut(name, settings.size)) for name in self.names)
        self.detector: LanguageDetector | None = None
        if not found:
            return
        union = torch.cat(self.ids).unique()
        together = len(self.ids) > 1 and len(union) <= FEWER * self.vocab_size
        if together:
            self.names, self.ids = (*self.names, TOGETHER), (*self.ids, union)
        self.detector = LanguageDetector(rankings, template, together=union.numpy() if together else None)
        self.names, self.ids = (*self.names, ALL), (*self.ids, torch.arange(self.vocab_size, device="cpu"))

    def together(self) -> DraftVocabularies | None:
        """Those of all languages as one, for all requests; None: that is all tokens, so nothing is gained."""
        one = copy(self)
        if self.detector is not None:
            languages = self.detector.languages
            one.names, one.ids = (" + ".join(languages),), (torch.cat(self.ids[: len(languages)]).unique(),)
            one.detector = None
        return one if len(one.ids[0]) < self.vocab_size else None
