"""The output head's rows of each draft vocabulary in use, gathered once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Rankings

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class VocabularySettings:
    """What is drafted from.

    size: tokens of each draft vocabulary; None: all that a ranking lists.  language: "auto" finds it for each request,
    "none" drafts from the whole vocabulary, any other name fixes it.
    """

    size: int | None = None
    language: str = AUTO


class DraftVocabularies:
    """The maps that requests draft from, by number: int64 [R] token ids each, and the head's rows of each.

    Errors: `MTPCError` for an unknown language or a size out of range.
    """

    def __init__(self, rankings: Rankings, settings: VocabularySettings) -> None:
        if settings.language == NONE:
            raise MTPCError("language 'none' needs no draft vocabularies.")
        names = tuple(rankings.languages) if settings.language == AUTO else (settings.language,)
        self.names = names
        self.ids = tuple(torch.from_numpy(rankings.cut(name, settings.size)) for name in names)
        self.detector = LanguageDetector(rankings) if len(names) > 1 else None

    def gather(self, unembedding: Tensor) -> tuple[Tensor, ...]:
        """The rows of the output head [V, d] of each map: [R, d] each, copies."""
        return tuple(unembedding[ids.to(unembedding.device)] for ids in self.ids)
