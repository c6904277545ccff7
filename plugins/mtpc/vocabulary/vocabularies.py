"""The draft vocabularies of a server: the tokens of each, and the language detector that chooses between them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch

from mtpc.errors import MTPCError
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import ALL, AUTO, NONE, UNION, Rankings
from mtpc.vocabulary.template import Template

MAX_UNION_SHARE = 0.5  # of all tokens: a larger union vocabulary would save too little


@dataclass(frozen=True)
class VocabularySettings:
    """How a file of rankings is used.

    Attributes:
        size: Tokens of each draft vocabulary; None: all that a ranking lists.
        language: "auto" detects it for each request, "none" drafts from the whole vocabulary, a name fixes it.
    """

    size: int | None = None
    language: str = AUTO


class DraftVocabularies:
    """The draft vocabularies of requests, by number.

    With language "auto" the languages come first, then the union vocabulary if it is small enough, then all tokens.
    With a fixed language there is one vocabulary.

    Attributes:
        vocab_size: V of the target.
        names: Names of the vocabularies: languages, then `UNION` and `ALL`.
        ids: Tokens of each vocabulary, int64 [R], ascending.
        detector: Chooses the number of a request's vocabulary; None: there is only one.

    Args:
        rankings: Rankings of the target's vocabulary.
        settings: How they are used.
        template: Chat template of the target, skipped in language detection.

    Raises:
        MTPCError: The language is unknown or the size is out of range.
    """

    def __init__(self, rankings: Rankings, settings: VocabularySettings, template: Template | None = None) -> None:
        if settings.language == NONE:
            raise MTPCError("language 'none' needs no draft vocabularies.")
        self.vocab_size, is_detected = rankings.vocab_size, settings.language == AUTO
        self.names = tuple(rankings.languages) if is_detected else (settings.language,)
        self.ids = tuple(torch.from_numpy(rankings.cut(name, settings.size)) for name in self.names)
        self.detector: LanguageDetector | None = None
        if not is_detected:
            return
        union = torch.cat(self.ids).unique()
        has_union = len(self.ids) > 1 and len(union) <= MAX_UNION_SHARE * self.vocab_size
        if has_union:
            self.names, self.ids = (*self.names, UNION), (*self.ids, union)
        self.detector = LanguageDetector(rankings, template, union_tokens=union.numpy() if has_union else None)
        self.names, self.ids = (*self.names, ALL), (*self.ids, torch.arange(self.vocab_size, device="cpu"))

    def union(self) -> DraftVocabularies | None:
        """Return the union vocabulary as the only one; None: it is all tokens, so restricting gains nothing."""
        one = copy(self)
        if self.detector is not None:
            languages = self.detector.languages
            one.names, one.ids = (" + ".join(languages),), (torch.cat(self.ids[: len(languages)]).unique(),)
            one.detector = None
        return one if len(one.ids[0]) < self.vocab_size else None
