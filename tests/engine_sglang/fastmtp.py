"""What the plain loop of the core drafts, step by step, with the draft vocabulary that this adapter would choose."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from torch import Tensor

from mtpc.drafter import Draft
from mtpc.fastmtp import decoding
from mtpc.fastmtp.decoding import speculate
from mtpc.fastmtp.drafting import DraftSession
from mtpc.fastmtp.head import SharedHead
from mtpc.vocabulary.requests import RequestLanguages
from tests.engine.fastmtp import Loop


class SteppedLoop(Loop):
    """SGLang drafts the first token at the end of the step before: from the vocabulary that this step had."""

    def drafts(self, prompt: list[int], length: int, num_drafts: int) -> list[list[int]]:
        """The drafts of every step of a text of ``length`` tokens after the prompt, where steps do not overlap."""
        if self.vocabularies is None:
            return super().drafts(prompt, length, num_drafts)
        assert self.vocabularies.detector is not None
        languages = RequestLanguages(self.vocabularies.detector)
        heads = [self.head.restricted(ids) for ids in self.vocabularies.ids]
        found, text = [], prompt[:1]
        last, used = languages.choose("text", prompt), self.used

        class Stepped(DraftSession):
            """Changes its head after the first draft of a step; notes what it drafts."""

            def draft(self, hidden: Tensor, tokens: Tensor, *rest: Any) -> Draft:
                nonlocal last
                text.extend(tokens[0].tolist())
                chosen = languages.choose("text", text)
                used[chosen] += 1
                self.heads = iter([heads[last], *[heads[chosen]] * (num_drafts - 1)])
                last = chosen
                draft = super().draft(hidden, tokens, *rest)
                found.append(draft.tokens[0].tolist())
                return draft

            def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
                self.head = next(self.heads)
                return super()._step(previous, tokens)

        with patch.object(decoding, "DraftSession", Stepped):
            speculate(self.target, self.layer, SharedHead.of(self.target.model), prompt, length, num_drafts)
        return found
