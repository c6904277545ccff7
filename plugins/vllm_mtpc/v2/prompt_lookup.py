"""What the requests of a batch would copy, on Model Runner V2, whose requests' texts are on the device."""

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
    """The requests' texts, int32 [slots, T], moved to the device before there are any.

    vLLM's runner keeps them in the host's memory, unless they are read whole in every step, as they are here.
    """
    size = req_states.all_token_ids.gpu.shape
    req_states.all_token_ids = StagedWriteTensor(size, dtype=torch.int32, device=device)
    texts: Tensor = req_states.all_token_ids.gpu
    return texts


class DeviceCopying:
    """Copying beside both parts of a drafter, in buffers that never move: CUDA graphs read and write them.

    texts: int32 [slots, T], and lengths: int32 [slots], which the runner writes.  said: int32 [B], new tokens of each.
    copied: [B, K + 1], at the end of which there is nothing to copy.  weight: float32 [B], see `Copying`, and
    by_drafter: the drafter's own probability of what would be copied next, both as far as the autoregressive part has come.
    """

    def __init__(self, table: CopyTable, texts: Tensor, lengths: Tensor, rows: int, drafts: int) -> None:
        self.texts, self.lengths, device = texts, lengths, texts.device
        self.slots = SlotCopying(table, len(texts), drafts, device)
        self.said = torch.zeros(rows, dtype=torch.int32, device=device)
        self.copied = Copied(
            torch.zeros(rows, drafts + 1, dtype=torch.int64, device=device),
            torch.zeros(rows, drafts + 1, dtype=torch.float32, device=device),
        )
        self.weight, self.by_drafter = torch.zeros(2, rows, dtype=torch.float32, device=device)
        self.two = torch.arange(2, device=device)

    def propose(self, slots: Tensor) -> None:
        """At the beginning of a step; slots: int64 [B], -1 for padded rows."""
        rows = len(slots)
        proposed = self.slots.propose(self.texts, self.lengths, slots, self.said[:rows])
        for kept, new in zip(self.copied, proposed, strict=True):
            kept[:rows, :-1] = new
        self.weight[:rows] = proposed.chances[:, 0]

    def mixed(self, logits: Tensor, step: Tensor, temperature: Tensor | None) -> Tensor:
        """Logits whose softmax at these temperatures is the mixture of copying and the autoregressive part, float32 [B, V].

        logits: the autoregressive part's own, [B, V].  step: int64 [], its number, on the device.  temperature: [B]; None: 1.
        """
        copying = self._at(len(logits), step)
        own = at_temperature(logits, temperature)
        self.by_drafter[: len(logits)] = copying.of(own)
        mixed = copying.mixed(own).log()
        return mixed if temperature is None else mixed * torch.where(temperature > 0, temperature, 1.0)[:, None]

    def drafted(self, tokens: Tensor, step: Tensor) -> None:
        """What the autoregressive part has drafted in that step, int64 [B]."""
        rows = len(tokens)
        self.weight[:rows] = self._at(rows, step).drafted(tokens, self.by_drafter[:rows]).weight

    def after(self, autoregressive: int, rows: slice) -> Copying:
        """How copying stands when so many drafts of the autoregressive part are there."""
        tokens, chances = self.copied
        return Copying(Copied(tokens[rows, autoregressive:], chances[rows, autoregressive:]), 0, self.weight[rows])

    def _at(self, rows: int, step: Tensor) -> Copying:
        """Before a draft, as far as the next one needs it: in a graph only the device counts."""
        tokens, chances = (rest[:rows].index_select(1, step + self.two) for rest in self.copied)
        return Copying(Copied(tokens, chances), 0, self.weight[:rows])
