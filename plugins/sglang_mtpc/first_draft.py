"""First draft token of an autoregressive drafter, sampled from the mixture with prompt lookup.

SGLang drafts this token at the end of the preceding step, before the emitted tokens are known on the host.  With prompt
lookup it is sampled at the start of the step that verifies it; all further tokens continue from it.  On a CPU the
logits of this project's draft layers are also computed only then (`DraftLayersModel.defers_first_logits`), so a step
without drafts skips the head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mtpc.draw import at_temperature, choose
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copied, Copying
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.step import BatchStep

_FIRST_STREAM = 0x6669727374  # separates this noise from that of the parallel part in the same step


def first_probs(batch: Any, model: DraftLayersModel, states: Tensor) -> Tensor:
    """Return the draft layers' distribution of the first draft token, float32 [B, V], computed now if it was deferred.

    Args:
        batch: SGLang's ``ScheduleBatch``.
        model: The draft layers.
        states: Their states, [B, d].
    """
    if model.defers_first_logits:
        return at_temperature(model.first_logits(states), batch.sampling_info.temperatures[:, 0])
    probs: Tensor = batch.spec_info.draft_probs
    return probs


def draw_first(batch: Any, step: BatchStep, copied: Copied, drafter_probs: Tensor) -> Mixing:
    """Sample the first draft token of each request and write it, with its distribution, into ``EagleDraftInput``.

    Args:
        batch: SGLang's ``ScheduleBatch``.
        step: The decoding step.
        copied: Tokens to copy for the whole drafts.
        drafter_probs: The drafter's distribution of the token, float32 [B, V].

    Returns:
        The mixture, ready for the second token once `Mixing.drafted` has the first.
    """
    draft_input, mixing = batch.spec_info, Mixing(Copying.begin(copied), batch.sampling_info.temperatures)
    probs = mixing.mixed(drafter_probs)
    uniforms = counter_uniforms(step.seeds + _FIRST_STREAM, step.positions, 1)[:, 0]
    token = choose(probs, step.temperature, uniforms)[:, None]
    draft_input.topk_index, draft_input.topk_p, draft_input.draft_probs = token, probs.gather(1, token), probs
    return mixing
