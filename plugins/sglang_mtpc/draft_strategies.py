"""Draft strategies of drafters with an autoregressive part, whose layers run in SGLang's draft loop.

A chain or tree of the autoregressive part alone, of fixed length, needs no strategy: SGLang's loop drafts it.  With a
parallel part, ``hidden_states`` of SGLang's ``EagleDraftInput`` [B, 2 d] hold the target's states and the draft layers'
states after the first draft step.  SGLang makes this step at the end of the preceding decoding step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from mtpc.draft import Draft, DraftContext, TreeDraft, concat_positions
from mtpc.parallel.beams import Beams
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.adaptive import Lap
from sglang_mtpc.beam_tree import draft_tree
from sglang_mtpc.drafting import Drafting, DraftInputs, Drafts
from sglang_mtpc.first_draft import draw_first, first_probs
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.ranks import of_first_rank
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchStep


class LoopOutput(NamedTuple):
    """Output of SGLang's draft loop.

    Attributes:
        parents: Parents of a tree's nodes where `eagle_tree` made it, see `TreeDraft`; otherwise SGLang's, unused.
        scores: Scores of these nodes; otherwise SGLang's, unused.
        tokens: Draft tokens, int64 [B, nodes].
        probs: Distributions of a chain, float32 [B, steps, V]; None for a greedy batch.
        states: States of each pass of the draft layers, [rows, d]; empty unless a parallel part reads them.
    """

    parents: Tensor
    scores: Tensor
    tokens: Tensor
    probs: Tensor | None
    states: list[Tensor]


class DraftLoop(Protocol):
    """Runs SGLang's draft loop, see `AutoregressiveDraftWorker.run_loop`."""

    def __call__(self, batch: Any, steps: int, nodes: int, mixing: Mixing | None = None) -> LoopOutput:
        """Draft the tokens after the first one."""
        ...


class AutoregressiveTree:
    """Draft a tree with the autoregressive part alone; `eagle_tree` selects the loop's candidates.

    Args:
        loop: SGLang's draft loop.
        steps: Draft steps.
        nodes: Nodes of the tree.
    """

    def __init__(self, loop: DraftLoop, steps: int, nodes: int) -> None:
        self.loop, self.steps, self.nodes = loop, steps, nodes

    def __call__(self, batch: Any, step: BatchStep) -> TreeDraft:
        """Return a draft for each request of the batch."""
        looped = self.loop(batch, self.steps, self.nodes)
        return TreeDraft(looped.tokens, looped.parents, looped.scores)


class AutoregressiveChain:
    """Draft a chain with the autoregressive part alone, with prompt lookup or adaptive draft length.

    Args:
        loop: SGLang's draft loop.
        model: The draft layers.
        lap: Called after each part of drafting, see `DraftClock`.
    """

    def __init__(self, loop: DraftLoop, model: DraftLayersModel, lap: Lap) -> None:
        self.loop, self.model, self.lap = loop, model, lap

    def mixed(self, batch: Any, step: BatchStep, copied: Copied, count: int) -> Draft:
        """Draft ``count`` tokens for each request, each sampled from the mixture with prompt lookup."""
        own = first_probs(batch, self.model, batch.spec_info.hidden_states)
        mixing = draw_first(batch, step, copied, own)
        self.lap("draft step 1")
        looped = self.loop(batch, count, count, mixing)
        return Draft(looped.tokens, looped.probs)


class ParallelDrafts:
    """Draft with the parallel part alone, from the state that a request carries between steps, [B, d].

    It is the target's, or that of layers which draft nothing themselves.

    Args:
        drafting: Drafts the whole chain or tree.
        lap: Called after each part of drafting, see `DraftClock`.
    """

    def __init__(self, drafting: Drafting, lap: Lap) -> None:
        self.drafting, self.lap = drafting, lap

    def __call__(self, batch: Any, step: BatchStep) -> Drafts:
        """Return the whole chain or tree for each request of the batch."""
        return self._drafted(batch, step, None)

    def mixed(self, batch: Any, step: BatchStep, copied: Copied, count: int) -> Draft:
        """Draft the whole chain from the mixture with prompt lookup; the caller uses the first ``count`` tokens."""
        draft = self._drafted(batch, step, copied.first(self.drafting.shape.depth))
        assert isinstance(draft, Draft)
        return draft

    def _drafted(self, batch: Any, step: BatchStep, copied: Copied | None) -> Drafts:
        states, tokens = of_first_rank(batch.spec_info.hidden_states), batch.spec_info.bonus_tokens.long()
        drafts = self.drafting(DraftInputs.of(DraftContext.of_target(states, tokens), step, copied), step.mode)
        self.lap("parallel")
        return drafts


class TwoPartChain:
    """Draft a chain with both parts: the remaining autoregressive tokens, then those of the parallel part.

    Args:
        loop: SGLang's draft loop.
        steps: Draft steps of the autoregressive part.
        parallel: The parallel part.
        model: The draft layers.
        lap: Called after each part of drafting, see `DraftClock`.
    """

    def __init__(self, loop: DraftLoop, steps: int, parallel: Drafting, model: DraftLayersModel, lap: Lap) -> None:
        self.loop, self.steps, self.parallel, self.model, self.lap = loop, steps, parallel, model, lap

    def __call__(self, batch: Any, step: BatchStep) -> Draft:
        """Return a draft for each request of the batch."""
        target, first = of_first_rank(batch.spec_info.hidden_states).chunk(2, -1)
        return self._draft(batch, step, target, first, None)

    def mixed(self, batch: Any, step: BatchStep, copied: Copied, count: int) -> Draft:
        """Draft ``count`` tokens with both parts, each sampled from the mixture with prompt lookup."""
        target, first = of_first_rank(batch.spec_info.hidden_states).chunk(2, -1)
        own = first_probs(batch, self.model, first.contiguous())
        mixing = draw_first(batch, step, copied.first(count), own)
        self.lap("draft step 1")
        return self._draft(batch, step, target, first, mixing)

    def _draft(self, batch: Any, step: BatchStep, target: Tensor, first: Tensor, mixing: Mixing | None) -> Draft:
        """Draft from the target's states and the layers' states after the first draft step, [B, d] each."""
        draft_input, copied = batch.spec_info, None
        autoregressive, states = Draft(draft_input.topk_index, draft_input.draft_probs), [target, first]
        if autoregressive.probs is not None:
            autoregressive = autoregressive._replace(probs=autoregressive.probs[:, None])
        if self.steps > 1:
            draft_input.hidden_states = first.contiguous()
            looped = self.loop(batch, self.steps, self.steps, mixing)
            autoregressive, states = Draft(looped.tokens, looped.probs), states + looped.states
        if mixing is not None:
            mixing.drafted(autoregressive.tokens[:, -1])
            copied = mixing.copying.remaining()
        tokens = torch.cat([draft_input.bonus_tokens[:, None].long(), autoregressive.tokens], 1)
        known = DraftContext(torch.stack([each.to(target.dtype) for each in states], 1), tokens)
        drafts = self.parallel(DraftInputs.of(known, step, copied), step.mode)
        self.lap("parallel")
        assert isinstance(drafts, Draft)
        return concat_positions(
            [autoregressive if drafts.probs is not None else autoregressive._replace(probs=None), drafts]
        )


class TwoPartTree:
    """Draft a tree with both parts by `draft_tree`; SGLang's loop makes the second draft step if there is one.

    Args:
        loop: SGLang's draft loop.
        steps: Draft steps of the autoregressive part, 1 or 2.
        shape: Shape of the tree.
        parallel: The parallel part.
        model: The draft layers.
        lap: Called after each part of drafting, see `DraftClock`.
    """

    def __init__(
        self, loop: DraftLoop, steps: int, shape: DraftShape, parallel: ParallelPart, model: DraftLayersModel, lap: Lap
    ) -> None:
        self.loop, self.steps, self.shape = loop, steps, shape
        self.parallel, self.model, self.lap = parallel, model, lap

    def __call__(self, batch: Any, step: BatchStep) -> TreeDraft:
        """Return a draft for each request of the batch."""
        draft_input, next_pass = batch.spec_info, partial(self._second_states, batch) if self.steps > 1 else None
        draft_input.hidden_states = of_first_rank(draft_input.hidden_states)
        return draft_tree(draft_input, step, self.shape, self.model, self.parallel, next_pass, self.lap)

    def _second_states(self, batch: Any, beams: Beams, first: Tensor) -> Tensor:
        """Run one pass of SGLang's loop for k beams of each request: states [B, d] -> states [B k, d]."""
        draft_input, beam = batch.spec_info, beams.tokens.shape[1]
        draft_input.topk_index, draft_input.topk_p = beams.tokens, beams.scores.exp()
        draft_input.hidden_states = first.contiguous()
        (states,) = self.loop(batch, self.steps, beam).states  # the loop's own tree is not used
        return states
