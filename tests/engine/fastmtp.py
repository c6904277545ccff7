"""What the plain loop of the core drafts, step by step, with the draft vocabulary that an engine would choose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import Tensor

from mtpc.drafter import Draft
from mtpc.fastmtp import decoding
from mtpc.fastmtp.decoding import speculate
from mtpc.fastmtp.directory import load_layer
from mtpc.fastmtp.drafting import DraftSession
from mtpc.fastmtp.head import SharedHead
from mtpc.targets.frozen import FrozenTarget
from mtpc.vocabulary.heads import DraftVocabularies
from mtpc.vocabulary.requests import RequestLanguages


class Loop:
    """A target in transformers and a FastMTP drafter, float32, decoding greedily one text at a time.

    used: how many drafts were made with each draft vocabulary.
    """

    def __init__(self, target: Path, drafter: Path, vocabularies: DraftVocabularies | None = None) -> None:
        self.target = FrozenTarget(target)
        self.layer = load_layer(drafter)
        self.head = SharedHead.of(self.target.model)
        self.vocabularies = vocabularies
        self.used: Counter[int] = Counter()

    def drafts(self, prompt: list[int], length: int, num_drafts: int) -> list[list[int]]:
        """The drafts of every step of a text of ``length`` tokens after the prompt."""
        found: list[list[int]] = []
        used = self.used
        vocabularies = self.vocabularies
        languages = RequestLanguages(vocabularies.detector) if vocabularies and vocabularies.detector else None

        class Recorded(DraftSession):
            """Notes what it drafts; restricts the head to the map of the text so far."""

            def draft(self, hidden: Tensor, tokens: Tensor, *rest: Any) -> Draft:
                text.extend(tokens[0].tolist())
                if vocabularies is not None:
                    number = languages.choose("text", text) if languages else 0
                    used[number] += 1
                    self.head = head.restricted(vocabularies.ids[number])
                draft = super().draft(hidden, tokens, *rest)
                found.append(draft.tokens[0].tolist())
                return draft

        text, head = prompt[:1], self.head
        with patch.object(decoding, "DraftSession", Recorded):
            speculate(self.target, self.layer, head, prompt, length, num_drafts)
        return found
