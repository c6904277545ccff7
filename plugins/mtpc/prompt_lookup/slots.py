"""Prompt lookup of requests whose texts are on the device, one slot per request."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.prompt_lookup.calibration import LARGEST, LEARNING_RATE, MAX_OFFSET, limited
from mtpc.prompt_lookup.mixture import Copied, mixture_weight
from mtpc.prompt_lookup.on_device import DeviceTexts, Matches, continuations, longest_matches
from mtpc.prompt_lookup.table import CopyTable


class SlotCopying:
    """`mtpc.prompt_lookup.request.CopyRequest` for a batch on the device; the texts are passed in.

    Shapes are static, tensors keep their addresses and nothing waits for the host, so a CUDA graph may contain it.
    Call `begin` when a request gets a slot, then `propose` in each step.

    Attributes:
        offsets: `Calibration.offset` of each slot, float64 [slots + 1]; rows without a request use the last slot.
        proposed: The last proposals, [slots + 1, K].

    Args:
        table: Probabilities by length of the match.
        slots: Number of request slots.
        drafts: Tokens to propose, K.
        vocab_size: V of the target. Larger ids, as vLLM may put in the place of images, are never proposed.
        device: Device of all tensors.
    """

    def __init__(self, table: CopyTable, slots: int, drafts: int, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.table = torch.tensor([limited(chance) for chance in table.chances], dtype=torch.float64, device=device)
        self.positions = torch.arange(drafts, device=device)
        self.offsets = torch.zeros(slots + 1, dtype=torch.float64, device=device)
        shape = slots + 1, drafts
        self.proposed = Copied(
            torch.zeros(shape, dtype=torch.int64, device=device), torch.zeros(shape, dtype=torch.float32, device=device)
        )

    def begin(self, slot: int) -> None:
        """Start a new request in a slot."""
        self.offsets[slot].zero_()
        self.proposed.chances[slot].zero_()

    def propose(self, table: Tensor, lengths: Tensor, slots: Tensor, emitted: Tensor) -> Copied:
        """Learn from the emitted tokens and propose tokens with mixture weights, [B, K].

        Args:
            table: Token ids of all requests, the emitted ones included, int32 [slots, T].
            lengths: Tokens of each request, int32 [slots].
            slots: Slot of each row, int64 [B], -1 for a row without a request.
            emitted: Tokens emitted in each row since the last proposal, int32 [B]; 0: the row gets no draft in this
                step.

        Returns:
            The proposals; the weight is 0 where there is nothing to copy.
        """
        texts, slot_index = (
            DeviceTexts(table, slots, lengths[slots]),
            torch.where(slots < 0, len(self.offsets) - 1, slots),
        )
        offsets = self._learned(texts, slot_index, emitted)
        matches = longest_matches(texts, len(self.table))
        tokens = continuations(texts, matches, len(self.positions))
        known = (tokens >= 0) & (tokens < self.vocab_size)
        copyable = known.cumprod(1).bool() & (emitted[:, None] > 0)
        chances = torch.where(copyable, self._chances(matches, offsets), 0.0)
        tokens = torch.where(chances > 0, tokens, 0)
        self.offsets.index_copy_(0, slot_index, offsets)
        self.proposed.tokens.index_copy_(0, slot_index, tokens)
        self.proposed.chances.index_copy_(0, slot_index, chances)
        return Copied(tokens, mixture_weight(chances))

    def _learned(self, texts: DeviceTexts, slot_index: Tensor, emitted: Tensor) -> Tensor:
        """Return the offsets after `Calibration.learn`, float64 [B]."""
        new = texts.tokens((texts.lengths - emitted)[:, None] + self.positions)
        chances = self.proposed.chances[slot_index].double()
        checked = (chances > 0) & (self.positions < emitted[:, None])
        correct = checked & (new == self.proposed.tokens[slot_index])
        accepted = correct.cumprod(1)  # those before the first wrong one
        incorrect = checked & ~correct & (self.positions == accepted.sum(1, keepdim=True))
        up, down = (accepted * (1.0 - chances)).sum(1), (incorrect * chances).sum(1)
        return ((self.offsets[slot_index] + LEARNING_RATE * up).clamp_max(MAX_OFFSET) - LEARNING_RATE * down).clamp_min(
            -MAX_OFFSET
        )

    def _chances(self, matches: Matches, offsets: Tensor) -> Tensor:
        """Return `CopyTable.after_match` the matches after `Calibration.corrected`, float32 [B, K]."""
        tokens = matches.length[:, None] + self.positions  # length of the match as it grows
        chances = self.table[(tokens - 1).clamp(0, len(self.table) - 1)]  # of `CopyTable.after_match`
        odds = chances / (1.0 - chances) * offsets.exp()[:, None]
        corrected = (odds / (1.0 + odds)).clamp_max(LARGEST)
        return torch.where(matches.length[:, None] > 0, corrected, 0.0).float()
