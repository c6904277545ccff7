"""An autoregressive part's first draft where copying is a component of what it is drawn from.

SGLang drafts it at the end of the step before, where nobody has read on the host what the target has said.  With
copying it is drawn when the step begins that verifies it, and all that follows goes on from this draw.  On a CPU its
logits are computed only then (`DraftLayersModel.first_waits`), so that a step without drafts is spared the head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mtpc.draw import at_temperature, choose
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.step import Step

_FIRST_STREAM = 0x6669727374  # keeps these uniforms apart from those of the window in the same step


def draw_first(batch: Any, step: Step, copied: Copied, model: DraftLayersModel, states: Tensor) -> Mixing:
    """Draw the first draft of each request of a batch, and state what it was drawn from in its ``EagleDraftInput``.

    copied: of the whole drafts.  states: the layer's, [B, d].  Returns how far the drafts have come.
    """
    draft_input, temperatures = batch.spec_info, batch.sampling_info.temperatures
    own = draft_input.draft_probs
    if model.first_waits:
        own = at_temperature(model.first_logits(states), temperatures[:, 0])
    mixing = Mixing(copied, temperatures)
    probs = mixing.mixed(own)
    uniforms = counter_uniforms(step.seeds + _FIRST_STREAM, step.positions, 1)[:, 0]
    token = choose(probs, step.temperature, uniforms)[:, None]
    draft_input.topk_index, draft_input.topk_p, draft_input.draft_probs = token, probs.gather(1, token), probs
    return mixing
