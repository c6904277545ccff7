"""The plain loop that engines' drafts must equal: an autoregressive part, then a parallel part, without an engine."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draft import Draft, DraftContext, Mode, TreeDraft, concat_positions
from mtpc.draw import at_temperature, choose
from mtpc.methods.drafter import Drafter
from mtpc.methods.trees import TreeLimits, grow_levels
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.shared import SharedHead


class ReferenceDrafter:
    """What a drafter knows of B texts of equal length, and drafts that go on from there.

    The cache of the autoregressive part holds one entry for each position whose state the target has computed and whose next
    token is known.  Entries of drafts are made on the way and dropped again: what becomes of a draft is the target's to
    say.  head: the target's embedding and output head, read by an autoregressive part only, unless it has its own.
    """

    def __init__(self, drafter: Drafter, head: SharedHead) -> None:
        self.drafter, self.head = drafter, drafter.head(head)
        self.cache = DynamicCache()
        self.length = 0

    def draft(
        self,
        hidden: Tensor,
        following: Tensor,
        num_drafts: int,
        temperature: Tensor | None = None,
        noise: Tensor | None = None,
        copied: Copied | None = None,
    ) -> Draft:
        """Take up new positions and draft K tokens after the last of them.

        hidden: [B, m, d], the target's states of the m positions after those taken up before: after its final norm, or
        those that the autoregressive part reads (`TargetInterface.state_below`).
        following: int64 [B, m], the token after each; the last is the one that the target has just emitted.
        temperature: [B]; None drafts greedily, with no probabilities.  noise: float64 [B, K], uniforms in [0, 1), one
        for each draft; needed with a temperature.  copied: at least K tokens that may be copied instead of drafted.
        """
        autoregressive, parallel = self.drafter.split(num_drafts)
        context = DraftContext.of_target(hidden[:, -1], following[:, -1])
        copying = None if copied is None else Copying.begin(copied)
        drafts: list[Draft] = []
        if self.drafter.autoregressive is not None:
            context, draft, copying = self._autoregressive(
                hidden, following, context, autoregressive, temperature, noise, copying
            )
            drafts.append(draft)
        if parallel:
            assert self.drafter.parallel is not None  # part of the contract: K is no more than the drafter can draft
            rest = None if noise is None else noise[:, autoregressive:]
            context, mode = self._completed(context), self._mode(temperature)
            drafts.append(self.drafter.parallel.draft(context, temperature, rest, parallel, mode, copying))
        return concat_positions(drafts) if drafts else Draft(following[:, :0], None)

    def draft_tree(
        self,
        hidden: Tensor,
        following: Tensor,
        size: int,
        temperature: Tensor | None = None,
        max_children: int | None = None,
        *,
        depth: int | None = None,
    ) -> TreeDraft:
        """Take up new positions, as `draft` does, and draft a tree of N nodes after the last of them.

        Without an autoregressive part it is the window's (`ParallelPart.draft_tree`).  With one, the autoregressive part goes on from
        ``max_children`` prefixes of each level (N by default), and the window grows under the last of them; see
        `mtpc.parallel.beams`.  temperature: [B], at 0 and where it is None 1: only the order of probabilities counts.
        depth: tokens of one path at most, as many as can be drafted by default.

        Errors: `MTPCError` where the limits leave no room for N nodes.
        """
        if self.drafter.autoregressive is None:
            assert self.drafter.parallel is not None  # a drafter has a part
            context = self._completed(DraftContext.of_target(hidden[:, -1], following[:, -1]))
            return self.drafter.parallel.draft_tree(context, temperature, size, max_children, depth=depth)
        context = DraftContext.of_target(hidden[:, -1], following[:, -1])
        self.length += hidden.shape[1]

        def step(states: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:
            self.cache.reorder_cache(rows)
            return self._step(states[:, None], tokens[:, None])[:, 0]

        first, deepest = self._step(hidden, following)[:, -1], self.drafter.config.max_drafts
        limits = TreeLimits.of(size, deepest if depth is None else min(depth, deepest), max_children)
        growth = grow_levels(self.drafter, self.head, context, first, step, limits, temperature)
        rows = len(self.cache.layers[0].keys)
        self.cache.reorder_cache(torch.arange(0, rows, rows // len(first), device=first.device))
        truncate_cache(self.cache, self.length)
        return growth.tree(size)

    def _mode(self, temperature: Tensor | None) -> Mode:
        """Of a batch."""
        if temperature is None:
            return "greedy"
        return "sampled" if bool((temperature > 0).all()) else "mixed"

    def _completed(self, context: DraftContext) -> DraftContext:
        """With what only some windows read."""
        assert self.drafter.parallel is not None
        if not self.drafter.parallel.reads_autoregressive:
            return context
        assert self.drafter.autoregressive is not None  # part of the contract: such a window goes on from one
        return with_head_inputs(context, self.drafter.autoregressive, self.head)

    def _autoregressive(
        self, hidden: Tensor, following: Tensor, context: DraftContext, steps: int, temperature: Tensor | None,
        noise: Tensor | None, copying: Copying | None,
    ) -> tuple[DraftContext, Draft, Copying | None]:  # fmt: skip
        """What is known after so many steps, their draft, and how copying stands."""
        self.length += hidden.shape[1]
        state = self._step(hidden, following)[:, -1:]
        states, tokens, probs, confidences = [context.states], [context.tokens], [], []
        for step in range(steps):
            if step:
                state = self._step(state, tokens[-1])
            q = at_temperature(self.head.logits(state[:, 0]), temperature)  # [B, R]
            uniforms = None if noise is None else noise[:, step]
            if copying is None:
                token, q = self.head.tokens_of(choose(q, temperature, uniforms)), self.head.spread(q)
            else:
                own = self.head.spread(q)
                q = copying.mixed(own)
                token = choose(q, temperature, uniforms)
                copying = copying.drafted(token, copying.of(own))
                confidences.append(q.amax(1))
            if temperature is not None:
                probs.append(q)
            states.append(state)
            tokens.append(token[:, None])
        truncate_cache(self.cache, self.length)
        context = DraftContext(torch.cat(states, 1), torch.cat(tokens, 1))
        stated, largest = (torch.stack(rows, 1) if rows else None for rows in (probs, confidences))
        return context, Draft(context.tokens[:, 1:], stated, largest), copying

    def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """One application of the layer to m positions after those in the cache: [B, m, d]."""
        assert self.drafter.autoregressive is not None
        before, new = self.cache.get_seq_length(), tokens.shape[1]
        positions = torch.arange(before, before + new, device=tokens.device)
        seen = torch.arange(before + new, device=tokens.device) <= positions[:, None]  # [m, before + m]
        embeddings = self.head.embed(tokens).to(previous.dtype)
        return self.drafter.autoregressive(embeddings, previous, positions[None], seen[None, None], self.cache)


def truncate_cache(cache: DynamicCache, length: int) -> None:
    """Keep at most the first entries of a cache; `crop` takes no number of these from transformers 5.24 on."""
    if (surplus := cache.get_seq_length() - length) > 0:
        cache.crop(-surplus)
