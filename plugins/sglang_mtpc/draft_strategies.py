"""What makes the drafts of a drafter with an autoregressive part, whose layers run in SGLang's draft loop.

SGLang's own loop makes all of them where nothing else is to be done: then there is no strategy.  Where a window follows
the autoregressive part, ``hidden_states`` of SGLang's ``EagleDraftInput`` are [B, 2 d]: the target's states, and beside them
those of the first draft step, which SGLang has made at the end of the step before.
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
from sglang_mtpc.drafting import Drafting, Inputs
from sglang_mtpc.first_draft import draw_first
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.ranks import of_first_rank
from sglang_mtpc.shape import Shape
from sglang_mtpc.step import Step


class Looped(NamedTuple):
    """What SGLang's draft loop has made.

    parents, scores: of a tree that `eagle_tree` has made, see `TreeDraft`; SGLang's own otherwise, which nobody needs.
    tokens: int64 [B, nodes].  probs: of a chain, float32 [B, steps, V], None for a greedy batch.  states: of each pass
    of the layers, [rows, d], where a window reads them.
    """

    parents: Tensor
    scores: Tensor
    tokens: Tensor
    probs: Tensor | None
    states: list[Tensor]


class Loop(Protocol):
    """SGLang's draft loop, see `AutoregressiveDraftWorker.run_loop`."""

    def __call__(self, batch: Any, steps: int, nodes: int, mixing: Mixing | None = None) -> Looped:
        """Draft from the first draft on."""
        ...


class AutoregressiveTree:
    """A tree of the autoregressive part alone, which `eagle_tree` makes of the loop's candidates."""

    def __init__(self, loop: Loop, steps: int, nodes: int) -> None:
        self.loop, self.steps, self.nodes = loop, steps, nodes

    def __call__(self, batch: Any, step: Step) -> TreeDraft:
        """A draft of each request."""
        looped = self.loop(batch, self.steps, self.nodes)
        return TreeDraft(looped.tokens, looped.parents, looped.scores)


class AutoregressiveChain:
    """A chain of the autoregressive part alone, with prompt lookup or of chosen lengths."""

    def __init__(self, loop: Loop, model: DraftLayersModel, lap: Lap) -> None:
        self.loop, self.model, self.lap = loop, model, lap

    def mixed(self, batch: Any, step: Step, copied: Copied, own: int) -> Draft:
        """So many tokens of each request, each mixed with what would be copied in its place."""
        mixing = draw_first(batch, step, copied, self.model, batch.spec_info.hidden_states)
        self.lap("draft step 1")
        looped = self.loop(batch, own, own, mixing)
        return Draft(looped.tokens, looped.probs)


class TwoPartChain:
    """A chain of both parts: what is left of the autoregressive part's tokens, then the window's.

    steps: of the autoregressive part.
    """

    def __init__(self, loop: Loop, steps: int, parallel: Drafting, model: DraftLayersModel, lap: Lap) -> None:
        self.loop, self.steps, self.parallel, self.model, self.lap = loop, steps, parallel, model, lap

    def __call__(self, batch: Any, step: Step) -> Draft:
        """A draft of each request."""
        target, first = of_first_rank(batch.spec_info.hidden_states).chunk(2, -1)
        return self._draft(batch, step, target, first, None)

    def mixed(self, batch: Any, step: Step, copied: Copied, own: int) -> Draft:
        """The same, with each token mixed with what would be copied in its place; own: how many both parts draft."""
        target, first = of_first_rank(batch.spec_info.hidden_states).chunk(2, -1)
        mixing = draw_first(batch, step, copied.first(own), self.model, first.contiguous())
        self.lap("draft step 1")
        return self._draft(batch, step, target, first, mixing)

    def _draft(self, batch: Any, step: Step, target: Tensor, first: Tensor, mixing: Mixing | None) -> Draft:
        """target, first: [B, d] each, the target's states and those of the first draft step."""
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
        drafts = self.parallel(Inputs.of(known, step, copied), step.mode)
        self.lap("parallel")
        assert isinstance(drafts, Draft)
        return concat_positions(
            [autoregressive if drafts.probs is not None else autoregressive._replace(probs=None), drafts]
        )


class TwoPartTree:
    """A tree of both parts: `draft_tree`, with SGLang's loop for the second draft step if there is one."""

    def __init__(
        self, loop: Loop, steps: int, shape: Shape, parallel: ParallelPart, model: DraftLayersModel, lap: Lap
    ) -> None:
        self.loop, self.steps, self.shape, self.parallel, self.model, self.lap = (
            loop,
            steps,
            shape,
            parallel,
            model,
            lap,
        )

    def __call__(self, batch: Any, step: Step) -> TreeDraft:
        """A draft of each request."""
        draft_input, again = batch.spec_info, partial(self._second_states, batch) if self.steps > 1 else None
        draft_input.hidden_states = of_first_rank(draft_input.hidden_states)
        return draft_tree(draft_input, step, self.shape, self.model, self.parallel, again, self.lap)

    def _second_states(self, batch: Any, beams: Beams, first: Tensor) -> Tensor:
        """The layers' states [B k, d] after one pass of SGLang's loop for k prefixes of each request.

        first: [B, d], their states before.
        """
        draft_input, beam = batch.spec_info, beams.tokens.shape[1]
        draft_input.topk_index, draft_input.topk_p = beams.tokens, beams.scores.exp()
        draft_input.hidden_states = first.contiguous()
        (states,) = self.loop(batch, self.steps, beam).states  # its tree, of as many nodes, is nobody's
        return states
