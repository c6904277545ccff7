"""The autoregressive part's drafts mixed with what would be copied, one by one, all but the first in SGLang's loop."""

from __future__ import annotations

from torch import Tensor

from mtpc.draw import at_temperature
from mtpc.prompt_lookup.mixture import Copied, Copying
from sglang_mtpc.finite import finite


class Mixing:
    """How far the drafts of one step have come; see `DraftLayersModel.in_loop` for those of SGLang's loop.

    For each token `mixed` or `logits`, then `drafted`.

    copied: of the whole draft.  temperatures: float32 [B, 1], by which SGLang's loop divides logits.
    """

    by_drafter: Tensor  # [B], see `Copying.drafted`

    def __init__(self, copied: Copied, temperatures: Tensor) -> None:
        self.copying, self.temperatures = Copying.begin(copied), temperatures
        self.waits = False  # whether a distribution was mixed whose token is still to be told

    def mixed(self, own: Tensor) -> Tensor:
        """The distribution of the next draft, float32 [B, V], of the autoregressive part's own, [B, V]."""
        self.by_drafter, self.waits = self.copying.of(own), True
        # SGLang's kernel takes a probability that rounding has put above 1 for no probability and rejects the draft.
        return self.copying.mixed(own).clamp_max(1.0)

    def drafted(self, tokens: Tensor) -> None:
        """Go on after the last draft, int64 [B], unless this was told before."""
        if self.waits:
            self.copying, self.waits = self.copying.drafted(tokens, self.by_drafter), False

    def logits(self, own: Tensor) -> Tensor:
        """Logits of the next draft, float32 [B, V]: what SGLang's loop draws and states of them is mixed.

        own: the autoregressive part's, [B, V].
        """
        return finite(self.mixed(at_temperature(own, self.temperatures[:, 0])).log()) * self.temperatures
