"""What the plain loop of the core drafts, step by step, with what this adapter would choose or copy before each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mtpc.copying.mixture import Copied
from mtpc.copying.request import CopyRequest, Proposal
from mtpc.draft import Draft
from mtpc.families.session import Session
from mtpc.vocabulary.requests import RequestLanguages
from tests.engine.loop import Loop
from tests.oracles.decoding import decode_speculatively


class SteppingSession(Session):
    """Changes its head after the first draft of a step; notes what it drafts.

    SGLang drafts the first token at the end of the step before: from the vocabulary that this step had.
    """

    def __init__(self, loop: Loop, prompt: list[int]) -> None:
        super().__init__(loop.drafter, loop.head)
        assert loop.vocabularies is not None
        assert loop.vocabularies.detector is not None
        self.loop, self.text = loop, prompt[:1]
        self.drafts: list[list[int]] = []
        self.languages = RequestLanguages(loop.vocabularies.detector)
        self.restricted = [loop.head.restricted(ids) for ids in loop.vocabularies.ids]
        self.last = self.languages.choose("text", prompt)

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        self.text.extend(following[0].tolist())
        chosen = self.languages.choose("text", self.text)
        self.loop.used[chosen] += 1
        self.heads = iter([self.restricted[self.last], *[self.restricted[chosen]] * (num_drafts - 1)])
        self.last = chosen
        draft = super().draft(hidden, following, num_drafts, *rest)
        self.drafts.append(draft.tokens[0].tolist())
        return draft

    def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
        self.head = next(self.heads)
        return super()._step(previous, tokens)


class CopyingSession(Session):
    """Mixes its drafts with what its text would go on with, and goes on with that alone; notes what it drafts."""

    def __init__(self, loop: SteppedLoop, prompt: list[int]) -> None:
        super().__init__(loop.drafter, loop.head)
        self.loop, self.prompt = loop, prompt
        self.text: CopyRequest | None = None
        self.drafts: list[list[int]] = []

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        if self.text is None:
            self.text = CopyRequest(self.loop.table, self.prompt)
            self.text.append(following[0, -1:].tolist())
        else:
            self.text.append(following[0].tolist())
        copied = Copied(*map(torch.from_numpy, Proposal.beside_drafter([self.text.propose(num_drafts)], num_drafts)))
        self.loop.copied += bool(copied.chances.any())
        own = min(num_drafts, self.drafter.config.num_drafts)
        draft = super().draft(hidden, following, own, *rest, copied=copied)
        draft = draft._replace(tokens=torch.cat([draft.tokens, copied.tokens[:, own:]], 1))
        self.drafts.append(draft.tokens[0].tolist())
        return draft


class SteppedLoop(Loop):
    """`Loop` where steps do not overlap.

    copies: whether drafts are also copied from the text.  copied: steps in which there was something to copy.
    """

    copies = False
    copied = 0

    @torch.inference_mode()
    def drafts(self, prompt: list[int], length: int, num_drafts: int) -> list[list[int]]:
        """The drafts of every step of a greedy text of ``length`` tokens after the prompt."""
        if self.copies:
            copying = CopyingSession(self, prompt)
            decode_speculatively(self.states, copying, prompt, length, num_drafts, 0.0)
            return copying.drafts
        if self.vocabularies is None or self.vocabularies.detector is None:
            return super().drafts(prompt, length, num_drafts)
        session = SteppingSession(self, prompt)
        decode_speculatively(self.states, session, prompt, length, num_drafts, 0.0)
        return session.drafts
