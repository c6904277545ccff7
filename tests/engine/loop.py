"""The plain decoding loop without an engine: the drafts, texts and acceptance that every engine's are compared with."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.draft import Draft
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import StepCost
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextPart
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import draft_budget, load_drafter
from mtpc.prompt_lookup.request import CopyRequest, batch_proposals
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.vocabularies import DraftVocabularies
from tests.oracles.decoding import Decoded, decode_speculatively, decode_with_trees
from tests.oracles.request_languages import RequestLanguages

TOKENS = 64  # of each answer whose acceptance is compared


class Tree(NamedTuple):
    """Drafts as a tree: drafted tokens, and children of one node at most."""

    nodes: int
    children: int


class RecordingSession(ReferenceDrafter):
    """Notes what it drafts; drafts from the vocabulary of the text so far, and copies where the loop does."""

    def __init__(self, loop: Loop, prompt: list[int]) -> None:
        super().__init__(loop.drafter, loop.head)
        self.loop, self.text = loop, prompt[:1]
        self.drafts: list[list[int]] = []
        detector = loop.vocabularies.detector if loop.vocabularies is not None else None
        self.languages = None if detector is None else RequestLanguages(detector)
        self.lengths: DraftLengths | None = None
        self.copies: CopyRequest | None = None

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        self.text.extend(following[0].tolist())
        if self.loop.vocabularies is not None:
            number = self.languages.choose("text", self.text) if self.languages is not None else 0
            self.loop.used[number] += 1
            self.head = self.loop.head.restricted(self.loop.vocabularies.ids[number])
        if self.loop.cost is not None:
            draft = self.draft_adaptively(hidden, following, num_drafts, *rest)
        elif self.loop.copies:
            draft = self.draft_mixed(hidden, following, num_drafts, *rest)
        else:
            draft = super().draft(hidden, following, num_drafts, *rest)
        self.drafts.append(draft.tokens[0].tolist())
        return draft

    def draft_adaptively(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        """The drafter's own drafts mixed with what may be copied, then that alone, as long as is worth it; greedily."""
        assert self.loop.cost is not None
        text, emitted = self.text[:-1], self.text[-1:]
        if self.lengths is None:
            budget = self.loop.budget(num_drafts)
            self.lengths = DraftLengths(
                budget, num_drafts, self.loop.cost, self.loop.table, self.loop.vocab_size, copies=self.loop.copies
            )
        else:
            emitted = following[0].tolist()
        lengths = self.lengths
        lengths.begin()
        lengths.add("text", lambda: text, emitted, waiting=False)
        self.loop.copied += bool(lengths.proposals[0].chances[0])
        own = lengths.plan(num_drafts)
        copied = lengths.copied(own) if own and self.loop.copies else None
        draft = super().draft(hidden, following, own, *rest, copied=copied)
        (cut,) = lengths.cut(draft.tokens.tolist(), num_drafts, [False])
        drafted = draft.tokens.shape[1]
        self.loop.kinds[drafted, len(cut) - drafted] += 1
        return draft._replace(tokens=torch.tensor([cut], dtype=torch.int64).view(1, -1))

    def draft_mixed(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        """The drafter's own drafts mixed with what may be copied."""
        emitted = following[0].tolist()
        if self.copies is None:
            self.copies, emitted = CopyRequest(self.loop.table, self.text[:-1], self.loop.vocab_size), self.text[-1:]
        self.copies.append(emitted)
        copied = batch_proposals([self.copies.propose(num_drafts)], num_drafts)
        self.loop.copied += bool(copied.chances.any())
        return super().draft(hidden, following, num_drafts, *rest, copied=copied)


class RecordingTextPart:
    """Notes what is drafted with a text part, greedily, for one text."""

    def __init__(self, loop: Loop, prompt: list[int]) -> None:
        self.loop, self.text, self.key = loop, prompt[:1], object()
        self.drafting: TextDrafting | None = None
        self.drafts: list[list[int]] = []

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        loop, emitted = self.loop, following[0].tolist()
        if self.drafting is None:
            own, how = loop.drafter.config.own_drafts, {"cost": loop.cost, "ragged": loop.ragged}
            self.drafting = TextDrafting.of(loop.text_part, loop.folders[1], own, num_drafts, copies=loop.copies, **how)
        self.text += emitted
        self.drafting.add(self.key, lambda: self.text, emitted)
        loop.own = 0
        (tokens,) = self.drafting.draft([self.key], [0.0], num_drafts, None, [False]).tokens
        if (lengths := self.drafting.lengths) is not None:
            loop.kinds[loop.own, len(tokens) - loop.own] += 1
            loop.copied += bool(lengths.proposals[0].chances[0])
        self.drafts.append(tokens)
        return Draft(torch.tensor([tokens], dtype=torch.int64).view(1, -1), None)


class Loop:
    """A target in transformers and a drafter of any draft method, float32, decoding one text at a time.

    used: how many drafts were made with each draft vocabulary.  cost: of steps, where drafts are as long as is worth
    it; None: of one length.  kinds: how often the drafter drafted how much, and how much longer than its own the draft
    was.  copies: whether drafts are mixed with what may be copied, and copied: how often.  ragged: whether the engine
    verifies drafts of different lengths.  own: of the last draft, the tokens of a text part.
    """

    ragged, own = True, 0

    def __init__(
        self,
        target: Path,
        drafter: Path,
        vocabularies: DraftVocabularies | None = None,
        cost: StepCost | None = None,
        copies: bool = False,
    ) -> None:
        self.cost, self.table = cost, CopyTable.of(drafter)
        self.copies, self.copied = copies, 0
        self.kinds: Counter[tuple[int, int]] = Counter()
        self.target, self.folders = FrozenTarget(target), (target, drafter)
        self.drafter = load_drafter(drafter)
        if isinstance(self.drafter.autoregressive, AdaptedLayers):
            self.drafter.autoregressive.bind(self.target.model)
        self.head = self.drafter.head(SharedHead.of(self.target.model))
        self.vocabularies = vocabularies
        self.used: Counter[int] = Counter()
        self.text = torch.empty(0, dtype=torch.int64)
        self.cache = DynamicCache()
        autoregressive, self.vocab_size = self.drafter.config.autoregressive, self.drafter.config.vocab_size
        self.below = None if autoregressive is None else autoregressive.state_below
        self.hidden = self.last = torch.empty(0, self.target.facts.hidden_size)

    @cached_property
    def text_part(self) -> TextPart:
        """Of a drafter that reads the text."""
        target, folder = self.folders
        part = self.drafter.method.text(folder, self.drafter.config, str(target), torch.device("cpu"))
        assert part is not None
        draft = part.draft

        def noting(*args: Any) -> Any:
            made = draft(*args)
            self.own = len(made.tokens[0])
            return made

        part.draft = noting  # type: ignore[method-assign]
        return part

    def budget(self, num_drafts: int) -> DraftBudget:
        """Which of the drafts are the drafter's own."""
        return draft_budget(self.drafter.config, num_drafts, self.copies)

    def recording(self, prompt: list[int]) -> RecordingSession | RecordingTextPart:
        """What drafts and notes it."""
        return (RecordingTextPart if self.drafter.method.reads_text else RecordingSession)(self, prompt)

    @torch.inference_mode()
    def drafts(self, prompt: list[int], length: int, num_drafts: int) -> list[list[int]]:
        """The drafts of every step of a greedy text of ``length`` tokens after the prompt."""
        session = self.recording(prompt)
        decode_speculatively(self.states, session, prompt, length, num_drafts, 0.0)
        return session.drafts

    @torch.inference_mode()
    def drafts_after(self, text: list[int], num_drafts: int) -> list[int]:
        """The drafts that follow a text, which is read anew."""
        session = self.recording(text)
        hidden, _ = self.states(torch.tensor(text[:-1]))
        session.draft(hidden[None], torch.tensor([text[1:]]), num_drafts)
        return session.drafts[0]

    @torch.inference_mode()
    def decode(self, prompt: str, temperature: float, tree: Tree | None = None) -> Decoded:
        """Speculative decoding of `TOKENS` bytes, as many drafts as the drafter is made for; one prompt, one text."""
        text, seed, session = list(prompt.encode()), len(prompt), ReferenceDrafter(self.drafter, self.head)
        if tree is None:
            drafts = self.drafter.config.num_drafts
            return decode_speculatively(self.states, session, text, TOKENS, drafts, temperature, seed)
        return decode_with_trees(self.states, session, text, TOKENS, tree.nodes, temperature, seed, tree.children)

    def states(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states that the drafter reads [T, d] and logits [T, V] of a text, int64 [T].

        What it shares with the text before it is not computed again.
        """
        length = min(len(text), len(self.text))
        different = (text[:length] != self.text[:length]).nonzero()
        shared = min(len(text) - 1, int(different[0]) if len(different) else length)
        if surplus := len(self.text) - shared:
            self.cache.crop(-surplus)
        model = self.target.model
        cached = {"past_key_values": self.cache, "use_cache": True, "output_hidden_states": self.below is not None}
        new = model.model(input_ids=text[None, shared:], **cached)
        read = new.last_hidden_state if self.below is None else new.hidden_states[self.below]
        self.last = torch.cat([self.last[:shared], new.last_hidden_state[0]])
        self.text, self.hidden = text, torch.cat([self.hidden[:shared], read[0]])
        return self.hidden, model.lm_head(self.last)
