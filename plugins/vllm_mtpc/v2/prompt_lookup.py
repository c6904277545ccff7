"""Prompt lookup on the device, for Model Runner V2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.worker.gpu.buffer_utils import StagedWriteTensor

from mtpc.draw import at_temperature
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.slots import SlotCopying
from mtpc.prompt_lookup.table import CopyTable


def texts_on_device(req_states: Any, device: torch.device) -> Tensor:
    """Move the requests' tokens to the device.  Call it before there are requests.

    vLLM keeps them in host memory, but prompt lookup reads them in every step.

    Args:
        req_states: The runner's ``RequestState``, whose ``all_token_ids`` is replaced.
        device: The device.

    Returns:
        The tokens of all slots, int32 [slots, T].
    """
    size = req_states.all_token_ids.gpu.shape
    req_states.all_token_ids = StagedWriteTensor(size, dtype=torch.int32, device=device)
    texts: Tensor = req_states.all_token_ids.gpu
    return texts


class DeviceCopying:
    """Mixes prompt lookup with both parts of a drafter, in buffers with fixed addresses for CUDA graphs.

    Protocol of a step: set `num_sampled`, then `propose`.  For each token of the autoregressive part `mixed`, then
    `drafted`.  Then `after` for the parallel part.

    Attributes:
        slots: Matches and statistics of each request slot.
        num_sampled: int32 [B], tokens that each request emitted in the step.
        copied: Proposed tokens and their probabilities, [B, K + 1]; the last position is empty.
        weight: float32 [B], weight of prompt lookup at the next position, see `Copying`.
        drafter_probs: float32 [B], the autoregressive part's probability of the next proposed token.

    Args:
        table: Probabilities of prompt lookup.
        texts: int32 [slots, T], tokens of the requests, which the runner writes.
        lengths: int32 [slots], their number, which the runner writes.
        rows: Maximum batch size.
        drafts: Maximum number of draft tokens, K.
        vocab_size: V of the target.
    """

    def __init__(
        self, table: CopyTable, texts: Tensor, lengths: Tensor, rows: int, drafts: int, vocab_size: int
    ) -> None:
        self.texts, self.lengths, device = texts, lengths, texts.device
        self.slots = SlotCopying(table, len(texts), drafts, vocab_size, device)
        self.num_sampled = torch.zeros(rows, dtype=torch.int32, device=device)
        self.copied = Copied(
            torch.zeros(rows, drafts + 1, dtype=torch.int64, device=device),
            torch.zeros(rows, drafts + 1, dtype=torch.float32, device=device),
        )
        self.weight, self.drafter_probs = torch.zeros(2, rows, dtype=torch.float32, device=device)
        self.two = torch.arange(2, device=device)

    def propose(self, slots: Tensor) -> None:
        """Look up the tokens to propose, at the beginning of a step.

        Args:
            slots: int64 [B], -1 for padded rows.
        """
        rows = len(slots)
        proposed = self.slots.propose(self.texts, self.lengths, slots, self.num_sampled[:rows])
        for kept, new in zip(self.copied, proposed, strict=True):
            kept[:rows, :-1] = new
        self.weight[:rows] = proposed.chances[:, 0]

    def mixed(self, logits: Tensor, step: Tensor, temperature: Tensor | None) -> Tensor:
        """Mix the autoregressive part's distribution with prompt lookup.

        Args:
            logits: The autoregressive part's, [B, V].
            step: Number of the draft step, int64 [], on the device.
            temperature: [B]; None for 1.

        Returns:
            Logits whose softmax at the temperature is the mixture, float32 [B, V].
        """
        copying = self._at(len(logits), step)
        probs = at_temperature(logits, temperature)
        self.drafter_probs[: len(logits)] = copying.drafter_probability(probs)
        mixed = copying.mixed(probs).log()
        return mixed if temperature is None else mixed * torch.where(temperature > 0, temperature, 1.0)[:, None]

    def drafted(self, tokens: Tensor, step: Tensor) -> None:
        """Update the weight with the tokens that were drawn from the mixture.

        Args:
            tokens: int64 [B].
            step: Number of the draft step, int64 [], on the device.
        """
        rows = len(tokens)
        self.weight[:rows] = self._at(rows, step).drafted(tokens, self.drafter_probs[:rows]).weight

    def after(self, autoregressive: int, rows: slice) -> Copying:
        """Return the state of prompt lookup after the autoregressive part.

        Args:
            autoregressive: Draft tokens of the autoregressive part.
            rows: Requests of the batch to return it for.
        """
        tokens, chances = self.copied
        return Copying(Copied(tokens[rows, autoregressive:], chances[rows, autoregressive:]), 0, self.weight[rows])

    def _at(self, rows: int, step: Tensor) -> Copying:
        """Return its state before a draft step, whose number is on the device because a graph is the same for all."""
        tokens, chances = (each[:rows].index_select(1, step + self.two) for each in self.copied)
        return Copying(Copied(tokens, chances), 0, self.weight[:rows])
