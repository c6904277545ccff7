"""The reference implementation of drafting, without an engine; the engines' drafts must equal its drafts."""

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
    """Drafts for B texts of equal length, with the state that an engine would keep.

    Call `draft` or `draft_tree` after each verification step with the positions that the target has computed since.
    The cache of the autoregressive part has one entry for each position whose state and next token are known. Entries
    of draft tokens are dropped again at the end of each call, because only the target decides which tokens are
    accepted.

    Attributes:
        drafter: The drafter.
        head: The embedding and output head that it drafts with.
        cache: Keys and values of the autoregressive part.
        length: Positions in the cache.

    Args:
        drafter: The drafter.
        head: The target's embedding and output head. Only an autoregressive part reads them, unless it has its own.
            Adapted layers must be bound to the target (`AdaptedLayers.bind`).
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
        """Process new positions and draft K tokens after the last of them.

        Args:
            hidden: [B, m, d], the target's states of the m new positions: after its final norm, or those that the
                autoregressive part reads (`TargetInterface.state_below`).
            following: int64 [B, m], the token after each position; the last is the one that the target has just
                sampled.
            num_drafts: K.
            temperature: [B]; 0 is greedy. None: all are greedy, and no probabilities are returned.
            noise: float64 [B, K], uniforms in [0, 1), one per draft token. Needed with a temperature.
            copied: Prompt lookup's proposal of at least K tokens, which is mixed in. None: no prompt lookup.

        Returns:
            K draft tokens and their distributions.
        """
        autoregressive, parallel = self.drafter.split(num_drafts)
        context = DraftContext.of_target(hidden[:, -1], following[:, -1])
        copying = None if copied is None else Copying.begin(copied)
        drafts: list[Draft] = []
        if self.drafter.autoregressive is not None:
            context, draft, copying = self._autoregressive(
                hidden, following, context, autoregressive, temperature, noise, copying
            )
            drafts += [draft] * bool(autoregressive)
        if parallel:
            assert self.drafter.parallel is not None  # part of the contract: K is no more than the drafter can draft
            rest = None if noise is None else noise[:, autoregressive:]
            context, mode = self._with_head_inputs(context), self._mode(temperature)
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
        """Process new positions as `draft` does, and draft a tree of N nodes after the last of them.

        Without an autoregressive part the tree is the parallel part's (`ParallelPart.draft_tree`). With one, each
        autoregressive level continues ``max_children`` prefixes, and the parallel part's levels are added under the
        last of them. See `mtpc.parallel.beams`.

        Args:
            hidden: See `draft`.
            following: See `draft`.
            size: N, nodes of the tree.
            temperature: [B]; 0, or None for all, counts as 1: only the order of probabilities counts.
            max_children: Most children of a node, N by default.
            depth: Most tokens of one path, as many as can be drafted by default.

        Returns:
            A tree of N nodes.

        Raises:
            MTPCError: Where the limits allow fewer than N nodes.
        """
        if self.drafter.autoregressive is None:
            assert self.drafter.parallel is not None  # a drafter has a part
            context = self._with_head_inputs(DraftContext.of_target(hidden[:, -1], following[:, -1]))
            return self.drafter.parallel.draft_tree(context, temperature, size, max_children, depth=depth)
        context = DraftContext.of_target(hidden[:, -1], following[:, -1])
        if not self._drafts:
            assert self.drafter.parallel is not None  # part of the contract
            context, _, _ = self._autoregressive(hidden, following, context, 0, None, None, None)
            context = self._with_head_inputs(context)
            return self.drafter.parallel.draft_tree(context, temperature, size, max_children, depth=depth)
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

    @property
    def _drafts(self) -> bool:
        """Whether the autoregressive part drafts, instead of computing the state for the parallel part."""
        config = self.drafter.config.autoregressive
        return config is None or config.drafts

    def _mode(self, temperature: Tensor | None) -> Mode:
        """Return the mode of a batch."""
        if temperature is None:
            return "greedy"
        return "sampled" if bool((temperature > 0).all()) else "mixed"

    def _with_head_inputs(self, context: DraftContext) -> DraftContext:
        """Add inputs and head for a parallel part that reads them."""
        assert self.drafter.parallel is not None
        if not self.drafter.parallel.reads_head:
            return context
        return with_head_inputs(context, self.drafter.autoregressive, self.head)

    def _autoregressive(
        self, hidden: Tensor, following: Tensor, context: DraftContext, steps: int, temperature: Tensor | None,
        noise: Tensor | None, copying: Copying | None,
    ) -> tuple[DraftContext, Draft, Copying | None]:  # fmt: skip
        """Run the draft steps; return the context after them, their draft and prompt lookup's state."""
        self.length += hidden.shape[1]
        state = self._step(hidden, following)[:, -1:]
        # Layers that draft nothing take the place of the target's last ones.
        states, tokens = [context.states if self._drafts else state], [context.tokens]
        probs: list[Tensor] = []
        for step in range(steps):
            if step:
                state = self._step(state, tokens[-1])
            q = at_temperature(self.head.logits(state[:, 0]), temperature)  # [B, R]
            uniforms = None if noise is None else noise[:, step]
            if copying is None:
                token, q = self.head.tokens_of(choose(q, temperature, uniforms)), self.head.spread(q)
            else:
                drafter = self.head.spread(q)
                q = copying.mixed(drafter)
                token = choose(q, temperature, uniforms)
                copying = copying.drafted(token, copying.drafter_probability(drafter))
            if temperature is not None:
                probs.append(q)
            states.append(state)
            tokens.append(token[:, None])
        truncate_cache(self.cache, self.length)
        context = DraftContext(torch.cat(states, 1), torch.cat(tokens, 1))
        return context, Draft(context.tokens[:, 1:], torch.stack(probs, 1) if probs else None), copying

    def _step(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """Apply the layers to m positions after those in the cache: [B, m, d]."""
        assert self.drafter.autoregressive is not None
        before, new = self.cache.get_seq_length(), tokens.shape[1]
        positions = torch.arange(before, before + new, device=tokens.device)
        seen = torch.arange(before + new, device=tokens.device) <= positions[:, None]  # [m, before + m]
        embeddings = self.head.embed(tokens).to(previous.dtype)
        return self.drafter.autoregressive(embeddings, previous, positions[None], seen[None, None], self.cache)


def truncate_cache(cache: DynamicCache, length: int) -> None:
    """Keep at most the first entries of a cache.

    From transformers 5.24 on `crop` only takes the number of entries to drop.

    Args:
        cache: Changed in place.
        length: Entries to keep.
    """
    if (surplus := cache.get_seq_length() - length) > 0:
        cache.crop(-surplus)
