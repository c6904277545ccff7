"""Chooses each request's draft vocabulary on the device, for Model Runner V2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mtpc.metrics.slot_tally import SlotTally
from mtpc.vocabulary.slots import SlotLanguages
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.new_requests import WARM_UP, on_new_request


class DeviceLanguages:
    """Connects `SlotLanguages` with a speculator's batches, in buffers with fixed addresses for CUDA graphs.

    Protocol: `graphs` are prepared and captured with the speculator's; then `read`, then `numbers` in each step.

    Attributes:
        slots: Language evidence of each request slot.
        tally: Counts accepted draft tokens by vocabulary; None if metrics are off.
        warms_up: Whether the last new request was one that vLLM made up.
        num_sampled: int32 [B], tokens that each request emitted in the step.
        num_rejected: int32 [B], draft tokens of each request that were rejected; -1 in a dummy run.
        graphs: Captured CUDA graphs of reading.

    Args:
        vocabularies: The draft vocabularies, of several languages.
        speculator: vLLM's or this project's; its ``idx_mapping`` has the slots of a batch.
        states: The runner's ``RequestState``.
        counts_metrics: Whether to count accepted draft tokens by vocabulary.
    """

    def __init__(self, vocabularies: DraftVocabularies, speculator: Any, states: Any, counts_metrics: bool) -> None:
        assert vocabularies.detector is not None  # there are several languages
        rows, drafts, device = speculator.max_num_reqs, speculator.num_speculative_steps, speculator.device
        self.speculator, self.states = speculator, states
        self.slots = SlotLanguages(vocabularies.detector, rows, drafts, device)
        self.slots.tally = self.tally = SlotTally(vocabularies.names, drafts, device) if counts_metrics else None
        self.num_sampled = torch.zeros(rows, dtype=torch.int32, device=device)
        self.num_rejected = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.graphs = BatchGraphs(speculator, "languages", self._read)
        self.warms_up = False
        on_new_request(states, self._begin)

    def read(self, rows: int, num_sampled: Tensor, num_rejected: Tensor | None, eager: bool) -> None:
        """Read the tokens that the requests emitted in a step.

        Args:
            rows: Batch size, B.
            num_sampled: int32 [at least B], emitted tokens of each request.
            num_rejected: int32 [at least B], rejected draft tokens of each; None in a dummy run, which is not counted.
                Nor are the requests that vLLM makes up while it starts: CUDA graphs are captured after them, and until
                then no other thread may read the counts.
            eager: See `BatchGraphs.run`.
        """
        self.num_sampled[:rows] = num_sampled[:rows]
        if self.tally is not None:
            counted = None if self.warms_up else num_rejected
            self.tally.begun |= counted is not None
            self.num_rejected[:rows] = -1 if counted is None else counted[:rows]
        self.graphs.run(rows, eager=eager)

    def _begin(self, name: str, slot: int, text: list[int]) -> None:
        """Start a request in a slot."""
        self.warms_up = name.startswith(WARM_UP)
        self.slots.begin(slot, text)

    def numbers(self, rows: int) -> Tensor:
        """Return the number of each request's draft vocabulary, int64 [B]."""
        return self.slots.of(self.speculator.idx_mapping[:rows])

    def _read(self, rows: int) -> None:
        """Read from and write to the buffers; captured in CUDA graphs."""
        texts, lengths = self.states.all_token_ids.gpu, self.states.total_len.gpu
        slots = self.speculator.idx_mapping[:rows]
        self.slots.read(texts, lengths, slots, self.num_sampled[:rows], self.num_rejected[:rows])
