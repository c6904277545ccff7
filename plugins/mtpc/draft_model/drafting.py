"""Drafts of a text part in a serving engine: how long they are, and where prompt lookup takes their place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from mtpc.draft import MAX_DRAFTS, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS, StepCost
from mtpc.draft_model.part import LazyProbs, TextDraft, TextPart
from mtpc.prompt_lookup.table import CopyTable


class TextDrafting:
    """Drafts for a batch with a text part and, where a request repeats its text, by prompt lookup instead.

    Protocol of a decoding step: `add` for each request of the batch, then `draft` for all of them; `forget` when
    requests are over.

    Attributes:
        part: The text part.
        lengths: Chooses draft lengths; None: the text part may always draft K tokens.

    Args:
        part: The text part.
        lengths: Draft lengths.
        ragged: Whether the engine verifies drafts of different lengths; otherwise all are filled up to the longest.
    """

    def __init__(self, part: TextPart, lengths: DraftLengths | None, ragged: bool) -> None:
        self.part, self.lengths, self.ragged = part, lengths, ragged
        # Whole texts of requests that have not drafted yet, and what they predict.
        self._new: dict[Hashable, tuple[list[int], Callable[[], Sequence[int]]]] = {}
        self._emitted: dict[Hashable, list[int]] = {}  # tokens since the last draft of the others
        self._limits: dict[Hashable, int] = {}  # most draft tokens of each request

    @classmethod
    def of(
        cls,
        part: TextPart,
        folder: Path,
        own_drafts: int,
        num_drafts: int,
        *,
        copies: bool,
        cost: StepCost | None,
        ragged: bool,
    ) -> Self:
        """Return the drafting that a user has set.

        Args:
            part: The text part.
            folder: The drafter checkpoint, for the acceptance rates of prompt lookup.
            own_drafts: Draft tokens of the text part at most, where prompt lookup continues its drafts.
            num_drafts: K.
            copies: Whether prompt lookup drafts as well.
            cost: Costs of decoding steps, by which lengths are chosen; None: drafts are as long as possible.
            ragged: Whether the engine verifies drafts of different lengths.
        """
        if not copies and cost is None:
            return cls(part, None, ragged)
        tokens = min(own_drafts, num_drafts) if copies else num_drafts
        budget, table = DraftBudget(tokens, steps=tokens), CopyTable.of(folder)
        lengths = DraftLengths(budget, num_drafts, cost or FREE_DRAFTS, table, part.vocab_size, copies=copies)
        return cls(part, lengths, ragged)

    @property
    def drafts_by_part(self) -> int | None:
        """Draft tokens of the text part at most; None: all of them."""
        return None if self.lengths is None else self.lengths.budget.tokens

    @property
    def facts(self) -> list[str]:
        """Facts for the line that is logged at start-up."""
        adapts = self.lengths is not None and self.lengths.cost is not FREE_DRAFTS
        looks_up = self.lengths is not None and self.lengths.copies
        return ["prompt lookup"] * looks_up + ["adaptive draft length" if adapts else "fixed draft length"]

    def use_cost(self, cost: StepCost) -> None:
        """Choose draft lengths by measured costs of decoding steps; without draft lengths it does nothing."""
        if self.lengths is not None:
            self.lengths.cost = cost

    def dummy_draft(self, requests: int) -> None:
        """Do the work of a whole draft for some requests, see `TextPart.dummy_draft`."""
        if self.lengths is not None:
            self.part.dummy_draft(requests, self.lengths.budget.tokens)

    def add(
        self,
        key: Hashable,
        text: Callable[[], Sequence[int]],
        emitted: Sequence[int],
        predicted: Callable[[], Sequence[int]] = tuple,
        limit: Callable[[], int] = lambda: MAX_DRAFTS,
    ) -> None:
        """Add the tokens that the target has emitted; see `TextPart.add` and `DraftLengths.add`."""
        self.part.add(key, text, emitted)
        if key not in self._limits:
            self._limits[key] = limit()
        if self.lengths is None:
            return
        if key in self._emitted:
            self._emitted[key] += emitted
        elif key in self._new:
            self._new[key][0].extend(emitted)
        else:
            self._new[key] = list(text()), predicted

    def forget(self, keys: Iterable[Hashable]) -> None:
        """Free the state of requests that are over; unknown ones are ignored."""
        keys = list(keys)
        self.part.forget(keys)
        for key in keys:
            self._new.pop(key, None)
            self._limits.pop(key, None)
            if self._emitted.pop(key, None) is not None and self.lengths is not None:
                self.lengths.forget([key])

    def draft(
        self,
        keys: Sequence[Hashable],
        temperatures: Sequence[float],
        num_drafts: int,
        noise: Tensor | None,
        independent: Sequence[bool],
    ) -> TextDraft:
        """Draft the tokens that follow each request's text.

        Args:
            keys: B requests.
            temperatures: Their temperatures; 0 is greedy.
            num_drafts: K, at least 1.
            noise: float64 [B, K] on the host, see `TextPart.draft`.
            independent: Which drafts must not depend on other requests of the batch: those with a seed.

        Returns:
            The draft tokens, with ``probs`` or ``lazy`` unless every temperature is 0.
        """
        if self.lengths is None:
            return self.part.draft(keys, temperatures, [min(num_drafts, self._limits[key]) for key in keys], noise)
        greedy = not any(temperatures)
        self._begin(self.lengths, keys, greedy)
        longest, by_drafter = self._planned(self.lengths, num_drafts, any(independent))
        asked = self.lengths.uncopied(by_drafter, longest)
        drafted = TextDraft([[] for _ in keys], None)
        if any(asked):
            drafted = self.part.draft(keys, temperatures, asked, noise)
        if self.ragged:
            tokens = self.lengths.cut(drafted.tokens, longest, independent, asked)
        else:
            tokens = self.lengths.continued(drafted.tokens, longest)
            self.lengths.drafted(drafted.tokens, by_drafter)
        return TextDraft(tokens, None) if greedy else _joined(drafted, tokens, self.part.vocab_size)

    def _begin(self, lengths: DraftLengths, keys: Sequence[Hashable], greedy: bool) -> None:
        """Begin a step with the texts of its requests."""
        lengths.begin(greedy)
        for key in keys:
            text, predicted = self._new.pop(key, ([], tuple))
            emitted, limit = self._emitted.get(key, ()), partial(self._limits.__getitem__, key)
            lengths.add(key, text.copy, emitted, waiting=False, predicted=predicted, limit=limit)
            self._emitted[key] = []

    def _planned(self, lengths: DraftLengths, num_drafts: int, independent: bool) -> tuple[int, int]:
        """Return the most tokens of a draft, and the most of them that the text part drafts."""
        if not self.ragged:
            ways = [[min(length, lengths.budget.tokens) for length in range(num_drafts + 1)], [0] * (num_drafts + 1)]
            way, longest = lengths.common_length(num_drafts, ways)
            return longest, way[longest]
        return num_drafts, min(num_drafts, lengths.budget.tokens) if independent else lengths.plan(num_drafts)


class JoinedProbs:
    """Distributions of drafts of which a text part has drawn the first tokens; all other tokens are certain.

    It implements `mtpc.draft_model.part.LazyProbs`.

    Args:
        drawn: The text part's, of drafts that may be longer.
        tokens: B drafts.
        counts: Number of tokens of each that the text part has drawn.
    """

    def __init__(self, drawn: LazyProbs, tokens: Sequence[Sequence[int]], counts: Sequence[int]) -> None:
        self._drawn, self._tokens, self._counts = drawn, tokens, torch.tensor(counts)
        self.stated = torch.ones(len(tokens), max(map(len, tokens)), dtype=torch.float64)
        for row, count in enumerate(counts):
            self.stated[row, :count] = drawn.stated[row, :count]

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return q(token) for M requests; see `DraftProbs.of`."""
        rows, positions, tokens = rows.cpu(), positions.cpu(), tokens.cpu()
        certain = [
            self._tokens[row][position] if position < len(self._tokens[row]) else 0
            for row, position in zip(rows.tolist(), positions.tolist(), strict=True)
        ]
        found = (tokens == torch.tensor(certain, dtype=torch.int64)).double()
        drawn = positions < self._counts[rows]
        if drawn.any():
            found[drawn] = self._drawn.of(rows[drawn], positions[drawn], tokens[drawn])
        return found


def _joined(drafted: TextDraft, tokens: list[list[int]], vocab_size: int) -> TextDraft:
    """Return drafts with their distributions, given what the text part has drawn of them."""
    if tokens == drafted.tokens and (drafted.probs is not None or drafted.lazy is not None):
        return drafted
    counts = [min(len(draft), len(drawn)) for draft, drawn in zip(tokens, drafted.tokens, strict=True)]
    if drafted.lazy is not None:
        return TextDraft(tokens, None, JoinedProbs(drafted.lazy, tokens, counts))
    width = max(map(len, tokens))
    filled = torch.tensor([draft + [0] * (width - len(draft)) for draft in tokens], dtype=torch.int64)
    probs = one_hot(filled.view(len(tokens), width), vocab_size)
    for row, count in enumerate(counts):
        if drafted.probs is not None:
            probs[row, :count] = drafted.probs[row, :count]
    return TextDraft(tokens, probs)
