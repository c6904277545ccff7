"""Drafts of the core's reference implementation, step by step, as SGLang's adapter would make them.

Before each step it chooses the draft vocabulary, the draft length and the copied tokens as the adapter does.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import accumulate, chain, repeat
from operator import mul
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draft import Draft, TreeDraft
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.parallel.borrow import borrow_nodes
from mtpc.target_head.shared import SharedHead
from sglang_mtpc.draft_lengths import drafter_token_count
from tests.engine.loop import Loop, Tree
from tests.oracles.decoding import decode_speculatively, decode_with_trees
from tests.oracles.request_languages import RequestLanguages


class PlacesOfBeams(DynamicCache):
    """From its third pass on, SGLang's loop gives a beam the keys of the one that stood in its place before."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Where there are as many beams as before, nothing moves."""
        if len(beam_idx) != self.layers[0].keys.shape[0]:
            super().reorder_cache(beam_idx)


class SteppingSession(ReferenceDrafter):
    """Changes its head after the first draft of a step; notes what it drafts.

    SGLang drafts the first token at the end of the step before, from the vocabulary that this step had; but trees of
    both parts are drafted at once.
    """

    def __init__(self, loop: Loop, prompt: list[int]) -> None:
        super().__init__(loop.drafter, copy(loop.head))
        self.loop, self.text = loop, prompt[:1]
        self.drafts: list[list[int]] = []
        self.heads: Iterator[SharedHead] = repeat(loop.head)
        if loop.tree is not None and loop.drafter.parallel is None:
            self.cache = PlacesOfBeams()
        self.languages = None
        if loop.vocabularies is not None and loop.vocabularies.detector is not None:
            self.languages = RequestLanguages(loop.vocabularies.detector)
            self.restricted = [loop.head.restricted(ids) for ids in loop.vocabularies.ids]
            self.last = self.languages.choose("text", prompt)

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        self._choose(following, at_once=False)
        draft = super().draft(hidden, following, num_drafts, *rest)
        self.drafts.append(draft.tokens[0].tolist())
        return draft

    def draft_tree(self, hidden: Tensor, following: Tensor, size: int, *rest: Any, **named: Any) -> TreeDraft:
        self._choose(following, at_once=self.drafter.parallel is not None)
        best = super().draft_tree(hidden, following, size, *rest, **named, depth=self.loop.depth)
        draft = borrow_nodes(best, self.loop.borrow)
        self.loop.borrowed += not torch.equal(draft.tokens, best.tokens)
        self.drafts.append(draft.tokens[0].tolist())
        return draft

    def _choose(self, following: Tensor, at_once: bool) -> None:
        """Choose the vocabularies of the next step's drafts, given the tokens that were emitted last."""
        self.text.extend(following[0].tolist())
        if self.languages is None:
            return
        chosen = self.languages.choose("text", self.text)
        self.loop.used[chosen] += 1
        if self.drafter.autoregressive is None:  # all tokens are drafted when the last one is known
            self.head = self.restricted[chosen]
        self.heads = chain([self.restricted[chosen if at_once else self.last]], repeat(self.restricted[chosen]))
        self.last = chosen

    def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
        following = next(self.heads)
        self.head.rows, self.head.ids = following.rows, following.ids  # a tree keeps its head from step to step
        return super()._step(previous, tokens)


class CommonSession(ReferenceDrafter):
    """Drafts of one length, chosen before they are made: the drafter's, mixed with what its text would go on with.

    Notes what it drafts.
    """

    def __init__(self, loop: SteppedLoop, prompt: list[int], num_drafts: int) -> None:
        super().__init__(loop.drafter, loop.head)
        self.loop, self.text = loop, prompt[:1]
        budget, cost = loop.budget(num_drafts), loop.cost
        self.ways = [[drafter_token_count(budget, length) for length in range(num_drafts + 1)]]
        self.ways += [[0] * (num_drafts + 1)] * (loop.copies and budget.tokens > 0)
        self.lengths = DraftLengths(
            budget, num_drafts, cost or FREE_DRAFTS, loop.table, loop.vocab_size, copies=loop.copies
        )
        self.drafts: list[list[int]] = []
        detector = loop.vocabularies.detector if loop.vocabularies is not None else None
        self.languages = None if detector is None else RequestLanguages(detector)

    def draft(self, hidden: Tensor, following: Tensor, num_drafts: int, *rest: Any) -> Draft:
        emitted = following[0].tolist()
        self.text.extend(emitted)
        if self.loop.vocabularies is not None:
            number = self.languages.choose("text", self.text) if self.languages is not None else 0
            self.loop.used[number] += 1
            self.head = self.loop.head.restricted(self.loop.vocabularies.ids[number])
        lengths = self.lengths
        lengths.begin()
        lengths.add("text", lambda: self.text, emitted if lengths.requests else [], waiting=False)
        way, length = self.ways[0], num_drafts
        copied = lengths.copied(num_drafts)
        if self.loop.own_drafts is not None:
            length = num_drafts if self._longer_is_faster(self.loop.own_drafts, num_drafts) else self.loop.own_drafts
        elif self.loop.cost is not None:
            way, length = lengths.common_length(num_drafts, self.ways)
        self.loop.copied += bool(copied.chances.any())
        own = self.loop.own_drafts or way[length]
        draft = super().draft(hidden, following, own, *rest, copied=copied if own else None)
        tokens = torch.cat([draft.tokens, copied.tokens[:, draft.tokens.shape[1] :]], 1)[:, :length]
        lengths.drafted(tokens.tolist(), own)
        self.loop.kinds[own, length - own] += 1
        self.drafts.append(tokens[0].tolist())
        return draft._replace(tokens=tokens)

    def _longer_is_faster(self, shorter: int, longer: int) -> bool:
        """Whether a step with the longer draft brings more for its cost, if all that is accepted is copied."""
        assert self.loop.cost is not None

        def rate(drafts: int) -> float:
            reached = accumulate(self.lengths.proposals[0].chances[:drafts], mul)
            return (1 + sum(reached)) / self.loop.cost.step(1, drafts)

        return rate(longer) > max(rate(shorter), 1)


class SteppedLoop(Loop):
    """`Loop` where steps do not overlap.

    copies: whether drafts are also copied from the text, and copied: how often.  cost: by which the one length of a
    step's drafts is chosen; None: it is always the longest.  own_drafts: what the drafter drafts in every step, where
    drafts have this length or the longest.
    tree: what is drafted, where it is no chain; depth: its longest path; borrow: its nodes that are borrowed; borrowed:
    steps in which some were.
    """

    ragged, borrowed = False, 0
    own_drafts: int | None = None
    tree: Tree | None = None
    depth: int | None = None
    borrow = 0

    @torch.inference_mode()
    def drafts(self, prompt: list[int], length: int, num_drafts: int) -> list[list[int]]:
        """The drafts of every step of a greedy text of ``length`` tokens after the prompt."""
        if self.tree is not None:
            growing = SteppingSession(self, prompt)
            decode_with_trees(self.states, growing, prompt, length, self.tree.nodes, 0.0, 0, self.tree.children)
            return growing.drafts
        if self.drafter.method.reads_text:
            return super().drafts(prompt, length, num_drafts)
        if self.copies or self.cost is not None:
            common = CommonSession(self, prompt, num_drafts)
            decode_speculatively(self.states, common, prompt, length, num_drafts, 0.0)
            return common.drafts
        if self.vocabularies is None or self.vocabularies.detector is None:
            return super().drafts(prompt, length, num_drafts)
        session = SteppingSession(self, prompt)
        decode_speculatively(self.states, session, prompt, length, num_drafts, 0.0)
        return session.drafts
