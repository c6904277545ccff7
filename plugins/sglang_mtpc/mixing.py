"""The serial part's drafts mixed with what would be copied, one by one, all but the first in SGLang's loop."""

from __future__ import annotations

from torch import Tensor

from mtpc.copying.mixture import Copied, Copying
from mtpc.draw import at_temperature
from sglang_mtpc.finite import finite


class Mixing:
    """How far the drafts of one step have come; the step's ``EagleDraftInput`` takes it to every pass of the layer.

    copied: of the whole draft.  temperatures: float32 [B, 1], by which SGLang's loop divides logits.
    """

    by_drafter: Tensor  # [B], see `Copying.drafted`

    def __init__(self, copied: Copied, temperatures: Tensor) -> None:
        self.copying, self.temperatures = Copying.begin(copied), temperatures

    def mixed(self, own: Tensor) -> Tensor:
        """The distribution of the next draft, float32 [B, V], of the serial part's own, [B, V]."""
        self.by_drafter = self.copying.of(own)
        # SGLang's kernel takes a probability that rounding has put above 1 for no probability and rejects the draft.
        return self.copying.mixed(own).clamp_max(1.0)

    def drafted(self, tokens: Tensor) -> None:
        """Go on after the next draft, int64 [B]."""
        self.copying = self.copying.drafted(tokens, self.by_drafter)

    def logits(self, tokens: Tensor, own: Tensor) -> Tensor:
        """Logits of the draft after ``tokens``, float32 [B, V]: what SGLang's loop draws and states of them is mixed.

        tokens: int64 [B], the last drafts, which the serial part has just read.  own: its logits, [B, V].
        """
        self.drafted(tokens)
        return finite(self.mixed(at_temperature(own, self.temperatures[:, 0])).log()) * self.temperatures
