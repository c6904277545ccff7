"""First draft token of an autoregressive part, sampled from the mixture with prompt lookup.

SGLang drafts this token at the end of the preceding step, before the emitted tokens are known on the host.  With prompt
lookup it is sampled at the start of the step that verifies it; all further tokens continue from it.  On a CPU its
logits are also computed only then (`DraftLayersModel.defers_first_logits`), so a step without drafts skips the head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mtpc.draw import at_temperature, choose
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.step import BatchStep

_FIRST_STREAM = 0x6669727374  # separates this noise from that of the parallel part in the same step


def draw_first(batch: Any, step: BatchStep, copied: Copied, model: DraftLayersModel, states: Tensor) -> Mixing:
    """Sample the first draft token of each request and write it, with its distribution, into ``EagleDraftInput``.

    Args:
        batch: SGLang's ``ScheduleBatch``.
        step: The decoding step.
        copied: Tokens to copy for the whole drafts.
        model: The draft layers.
        states: States of the draft layers, [B, d].

    Returns:
        The mixture, ready for the second token once `Mixing.drafted` has the first.
    """
    draft_input, temperatures = batch.spec_info, batch.sampling_info.temperatures
    drafter_probs = draft_input.draft_probs
    if model.defers_first_logits:
        drafter_probs = at_temperature(model.first_logits(states), temperatures[:, 0])
    mixing = Mixing(copied, temperatures)
    probs = mixing.mixed(drafter_probs)
    uniforms = counter_uniforms(step.seeds + _FIRST_STREAM, step.positions, 1)[:, 0]
    token = choose(probs, step.temperature, uniforms)[:, None]
    draft_input.topk_index, draft_input.topk_p, draft_input.draft_probs = token, probs.gather(1, token), probs
    return mixing
