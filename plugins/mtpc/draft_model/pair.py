"""A draft model with another tokenizer than its target, and the state of the requests that it drafts for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mtpc.draft import one_hot
from mtpc.draft_model.alignment import AlignedText
from mtpc.draft_model.byte_walk import SEEN, ByteWalk, SpelledVocabulary, WalkedDraft, WalkedProbs
from mtpc.draft_model.language_model import LanguageModel
from mtpc.draft_model.part import TextDraft, TextPart
from mtpc.draft_model.translation import StringMatch, TokenIntersection, TokenizerPair, Translation
from mtpc.errors import MTPCError, first_line

Rule = Literal["tli", "slem", "slrs"]
READS = 4  # passes of a draft model over bytes for a token of the target, of English text


@dataclass
class RequestText:
    """What the draft model knows of a request.

    Attributes:
        text: Its text in the draft model's tokens.
        beginning: The tokens that the draft model reads first, see `TokenizerPair`.
        kept: Leading tokens of ``text`` that have not changed since its last draft.
        cached: Tokens in its slot: the beginning, the text from ``offset`` on at its last draft, and that draft.
        offset: First token of the text that the draft model reads.
    """

    text: AlignedText
    beginning: list[int]
    kept: int = 0
    cached: list[int] = field(default_factory=list)
    offset: int = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Add tokens of the target."""
        self.kept = min(self.kept, self.text.extend(tokens))

    def read(self, context: int) -> tuple[list[int], int]:
        """Return the tokens that the draft model must read, at least one, and the position in the slot of the first.

        Args:
            context: Most tokens in its slot. A longer text is read again from its last half on.
        """
        context -= len(self.beginning)
        if len(self.text.ids) - self.offset > context:
            self.offset, self.cached = len(self.text.ids) - context // 2, []
        window = self.text.ids[self.offset :]
        if window[:1] != self.beginning:  # the target's text may begin with it
            window = self.beginning + window
        start, last = min(max(0, self.kept - self.offset), len(self.cached)), min(len(self.cached), len(window) - 1)
        while start < last and self.cached[start] == window[start]:
            start += 1
        start = min(start, len(window) - 1)
        self.cached, self.kept = window, len(self.text.ids)
        return window[start:], start


class PairPart(TextPart):
    """Drafts with a language model in its own tokens, and translates each draft into tokens of the target.

    Args:
        model: The draft model.
        tokenizers: Its tokenizer, and the target's.
        vocab_size: V of the target.
        rule: How drafts are translated, TLI, SLEM or SLRS.
        min_confidence: A draft ends where the probability that all of it is right falls below this, by the draft
            model's own probabilities.
        spelled: The target's vocabulary in the draft model's bytes; needed for SLRS alone.

    Raises:
        MTPCError: See `TokenizerPair.check_sizes`.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizers: TokenizerPair,
        vocab_size: int,
        rule: Rule,
        min_confidence: float,
        spelled: SpelledVocabulary | None = None,
    ) -> None:
        tokenizers.check_sizes(model.vocab_size, vocab_size)
        self.model, self.tokenizers, self.vocab_size = model, tokenizers, vocab_size
        self.rule, self.min_confidence, self.spelled = rule, min_confidence, spelled
        self.unwritable = tokenizers.unwritable(model.vocab_size)
        self.requests: dict[Hashable, RequestText] = {}
        self.slots: OrderedDict[Hashable, int] = OrderedDict()  # the least recently used first

    def add(self, key: Hashable, text: Callable[[], Sequence[int]], emitted: Sequence[int]) -> None:
        """See `TextPart.add`."""
        request = self.requests.get(key)
        if request is None:
            tokenizers = self.tokenizers
            own = AlignedText(tokenizers.target.tokens, tokenizers.own, tokenizers.special)
            request, emitted = self.requests.setdefault(key, RequestText(own, tokenizers.beginning)), text()
        request.add(emitted)

    def forget(self, keys: Iterable[Hashable]) -> None:
        """See `TextPart.forget`."""
        for key in keys:
            self.requests.pop(key, None)
            self.slots.pop(key, None)

    @torch.inference_mode()
    def dummy_draft(self, requests: int, num_drafts: int) -> None:
        """See `TextPart.dummy_draft`; requests beyond the slots do not draft."""
        slots = range(min(requests, self.model.slots))
        reads = num_drafts * (READS if self.rule == "slrs" else 1)
        for position in range(min(reads, self.model.context)):
            self.model.read(slots, [[0]] * len(slots), [position] * len(slots))

    def memory(self) -> int:
        """See `TextPart.memory`."""
        return self.model.memory()

    @torch.inference_mode()
    def draft(
        self, keys: Sequence[Hashable], temperatures: Sequence[float], lengths: Sequence[int], noise: Tensor | None
    ) -> TextDraft:
        """See `TextPart.draft`; requests without a slot get empty drafts."""
        longest = SEEN if self.rule == "slrs" else 1  # tokens of the draft model that one of the target takes
        lengths = [min(length, self.model.context // (2 * longest)) for length in lengths]
        drafts: list[Translation | None] = [None] * len(keys)
        reads, walked = {}, {}
        for row in self._with_slots(keys, [row for row, length in enumerate(lengths) if length]):
            request, uniforms = self.requests[keys[row]], None if noise is None else noise[row]
            if request.text.ids:
                reads[row] = request.read(self.model.context - lengths[row] * longest)
                drafts[row] = begun = self._translation(temperatures[row], uniforms)
                if isinstance(begun, ByteWalk):
                    walked[row] = WalkedDraft(begun, self.slots[keys[row]], len(request.cached), request.cached)
        while reads:
            rows, reading = list(reads), list(zip(*reads.values(), strict=True))
            logits = self.model.read([self.slots[keys[row]] for row in rows], *map(list, reading))
            logits = logits.cpu().index_fill_(1, self.unwritable, -torch.inf)  # the host waits for each token anyway
            reads = {}
            for row, row_logits in zip(rows, logits, strict=True):
                draft, cached = drafts[row], self.requests[keys[row]].cached
                assert draft is not None
                length = len(draft.own)
                while len(draft.own) == length and self._goes_on(draft, lengths[row]):
                    draft.choose(row_logits)
                if self._goes_on(draft, lengths[row]):
                    reads[row] = draft.own[length:], len(cached)
                    cached += draft.own[length:]
        sampled = any(temperatures)
        if sampled and walked and self.verifies_lazily:
            lazy = WalkedProbs(self.model, [walked.get(row) for row in range(len(keys))])
            return self._translated(keys, drafts, lengths, False)._replace(lazy=lazy)
        return self._translated(keys, drafts, lengths, sampled)

    def _goes_on(self, draft: Translation, num_drafts: int) -> bool:
        """Return whether a draft gets another token."""
        return not draft.ended and draft.confidence >= self.min_confidence and not draft.is_full(num_drafts)

    def _with_slots(self, keys: Sequence[Hashable], drafting: Sequence[int]) -> list[int]:
        """Give the requests that draft a slot each, and return the rows of those that have one.

        One that drafts keeps its slot; others lose theirs, the one that has not drafted for the longest first.
        """
        chosen = [keys[row] for row in drafting]
        for key in chosen:
            if key in self.slots:
                self.slots.move_to_end(key)
        for key in chosen[: self.model.slots]:
            if key in self.slots:
                continue
            if len(self.slots) < self.model.slots:
                self.slots[key] = min(set(range(self.model.slots)) - set(self.slots.values()))
            elif (oldest := next(iter(self.slots))) not in chosen:
                self.slots[key] = self.slots.pop(oldest)
                self.requests[oldest].cached = []
        return [row for row in drafting if keys[row] in self.slots]

    def _translation(self, temperature: float, uniforms: Tensor | None) -> Translation:
        """Begin the draft of a request."""
        if self.rule == "slem":
            return StringMatch(self.tokenizers)
        uniforms = uniforms if temperature > 0 else None
        if self.rule == "slrs":
            assert self.spelled is not None
            return ByteWalk(self.tokenizers, self.spelled, temperature, uniforms if self.verifies_lazily else None)
        return TokenIntersection(self.tokenizers, temperature, uniforms)

    def _translated(
        self, keys: Sequence[Hashable], drafts: Sequence[Translation | None], lengths: Sequence[int], sampled: bool
    ) -> TextDraft:
        """Translate all drafts, and state their distributions over the target's vocabulary."""
        made = [
            ([], []) if draft is None else draft.translated(self.requests[key].text.tail, length)
            for key, draft, length in zip(keys, drafts, lengths, strict=True)
        ]
        tokens = [row for row, _ in made]
        if not sampled:
            return TextDraft(tokens, None)
        width = max(map(len, tokens))
        filled = torch.tensor([row + [0] * (width - len(row)) for row in tokens], dtype=torch.int64)
        probs = one_hot(filled.view(len(tokens), width), self.vocab_size)
        for row, (_, stated) in enumerate(made):
            for place, each in enumerate(stated):
                probs[row, place].zero_()[self.tokenizers.common[1]] = each
        return TextDraft(tokens, probs)


def load_tokenizer(folder: Path | str) -> Any:
    """Load a tokenizer of transformers.

    Args:
        folder: A folder or an id.

    Returns:
        The tokenizer.

    Raises:
        MTPCError: There is none, or a damaged one.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # transformers raises any exception for a damaged folder
        raise MTPCError(f"{folder} holds no tokenizer that can be loaded: {first_line(error)}.") from None
