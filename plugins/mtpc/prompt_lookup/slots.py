"""What requests would copy where their texts lie on the device, each in a slot of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.prompt_lookup.calibration import FARTHEST, LARGEST, RATE, SMALLEST
from mtpc.prompt_lookup.mixture import Copied, doubted
from mtpc.prompt_lookup.on_device import Matches, Texts, continuations, longest_matches
from mtpc.prompt_lookup.table import CopyTable, filled


class SlotCopying:
    """`mtpc.prompt_lookup.request.CopyRequest` for a batch on the device, but for the texts.

    Shapes are static, tensors never move and nothing waits for the host, so that a CUDA graph may hold it.

    drafts: tokens that are proposed, K.  shift: float64 [slots + 1], `Shift` of each.  proposed: what was last
    proposed, [slots + 1, K].  Rows without a request write to the last place.
    """

    def __init__(self, table: CopyTable, slots: int, drafts: int, device: torch.device) -> None:
        self.table = torch.tensor(table.chances, dtype=torch.float64, device=device)
        self.places = torch.arange(drafts, device=device)
        by_place = torch.tensor(filled(table.copied, drafts), dtype=torch.float64, device=device)
        self.factors = by_place.exp()  # [K], of the odds of chances
        self.shift = torch.zeros(slots + 1, dtype=torch.float64, device=device)
        shape = slots + 1, drafts
        self.proposed = Copied(
            torch.zeros(shape, dtype=torch.int64, device=device), torch.zeros(shape, dtype=torch.float32, device=device)
        )

    def begin(self, slot: int) -> None:
        """A new request has come into a slot."""
        self.shift[slot].zero_()
        self.proposed.chances[slot].zero_()

    def propose(self, table: Tensor, lengths: Tensor, slots: Tensor, said: Tensor) -> Copied:
        """What the text of each row would go on with beside a drafter, [B, K]; no chance where nothing is to be copied.

        table: token ids int32 [slots, T] of all requests, and lengths: int32 [slots], with what has just been said.
        slots: int64 [B], -1 for a row without a request.  said: int32 [B], how many tokens of its text are new since
        the last proposal; 0 for a row that gets no draft in this step.
        """
        texts, own = Texts(table, slots, lengths[slots]), torch.where(slots < 0, len(self.shift) - 1, slots)
        shift = self._learned(texts, own, said)
        matches = longest_matches(texts, len(self.table))
        chances = torch.where(said[:, None] > 0, self._chances(matches, shift), 0.0)
        tokens = torch.where(chances > 0, continuations(texts, matches, len(self.places)), 0)
        self.shift.index_copy_(0, own, shift)
        self.proposed.tokens.index_copy_(0, own, tokens)
        self.proposed.chances.index_copy_(0, own, chances)
        return Copied(tokens, doubted(chances))

    def _learned(self, texts: Texts, own: Tensor, said: Tensor) -> Tensor:
        """The shifts after `Shift.learn`, float64 [B]."""
        new = texts.tokens((texts.lengths - said)[:, None] + self.places)
        chances = self.proposed.chances[own].double()
        judged = (chances > 0) & (self.places < said[:, None])
        right = judged & (new == self.proposed.tokens[own])
        until = right.cumprod(1)  # of those up to the first that was wrong
        wrong = judged & ~right & (self.places == until.sum(1, keepdim=True))
        up, down = (until * (1.0 - chances)).sum(1), (wrong * chances).sum(1)
        return ((self.shift[own] + RATE * up).clamp_max(FARTHEST) - RATE * down).clamp_min(-FARTHEST)

    def _chances(self, matches: Matches, shift: Tensor) -> Tensor:
        """`CopyTable.along` the matches, as `Shift.corrected` has them, float32 [B, K]."""
        tokens = matches.length[:, None] + self.places  # of the match, as it grows
        chances = self.table[(tokens - 1).clamp(0, len(self.table) - 1)].clamp(SMALLEST, LARGEST)
        odds = chances / (1.0 - chances) * self.factors
        stated = (odds / (1.0 + odds)).clamp(SMALLEST, LARGEST)  # of `CopyTable.along`
        odds = stated / (1.0 - stated) * shift.exp()[:, None]
        corrected = (odds / (1.0 + odds)).clamp_max(LARGEST)
        return torch.where(matches.length[:, None] > 0, corrected, 0.0).float()
