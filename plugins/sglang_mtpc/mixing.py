"""The serial part's drafts mixed with what would be copied, one by one, all but the first in SGLang's loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mtpc.draft import Draft
from mtpc.draft_length.passes import Enough
from mtpc.draw import at_temperature
from mtpc.prompt_lookup.mixture import Copied, Copying
from sglang_mtpc.finite import finite

GoesOn = Callable[[Tensor, Tensor], bool]  # of tokens, int64 [B], and the largest probability of each, float32 [B]


class Mixing:
    """How far the drafts of one step have come; the step's ``EagleDraftInput`` takes it to every pass of the layer.

    copied: of the whole draft.  temperatures: float32 [B, 1], by which SGLang's loop divides logits.  goes_on: asked
    before each pass of SGLang's loop whether it is made; None: all are.
    """

    by_drafter: Tensor  # [B], see `Copying.drafted`

    def __init__(self, copied: Copied, temperatures: Tensor, goes_on: GoesOn | None = None) -> None:
        self.copying, self.temperatures, self.goes_on = Copying.begin(copied), temperatures, goes_on
        self.tokens: list[Tensor] = []  # int64 [B] each
        self.largest: list[Tensor] = []  # float32 [B], the largest probability of each, and perhaps of one more
        self.probs: list[Tensor] = []  # float32 [B, V], what they are drawn from, where the loop may be ended

    def mixed(self, own: Tensor) -> Tensor:
        """The distribution of the next draft, float32 [B, V], of the serial part's own, [B, V]."""
        self.by_drafter = self.copying.of(own)
        # SGLang's kernel takes a probability that rounding has put above 1 for no probability and rejects the draft.
        probs = self.copying.mixed(own).clamp_max(1.0)
        self.largest.append(probs.amax(1))
        if self.goes_on is not None:
            self.probs.append(probs)
        return probs

    def drafted(self, tokens: Tensor) -> None:
        """Go on after the last draft, int64 [B], unless this was told before.

        Errors: `Enough`.
        """
        if len(self.tokens) == len(self.largest):
            return
        self.copying = self.copying.drafted(tokens, self.by_drafter)
        self.tokens.append(tokens.clone())  # SGLang writes those of the next pass in their place
        if self.goes_on is not None and not self.goes_on(tokens, self.largest[-1]):
            raise Enough

    def logits(self, own: Tensor) -> Tensor:
        """Logits of the next draft, float32 [B, V]: what SGLang's loop draws and states of them is mixed.

        own: the serial part's, [B, V].
        """
        return finite(self.mixed(at_temperature(own, self.temperatures[:, 0])).log()) * self.temperatures

    def peaks(self) -> Tensor:
        """The largest probability of each draft, float32 [B, K], once all are drawn."""
        return torch.stack(self.largest, 1)

    def draft(self, greedy: bool) -> Draft:
        """What was drafted where the loop was ended."""
        return Draft(torch.stack(self.tokens, 1), None if greedy else torch.stack(self.probs, 1))
