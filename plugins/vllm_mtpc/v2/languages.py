"""The draft vocabularies of requests on Model Runner V2, found on the device, where their texts are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mtpc.metrics.slot_tally import SlotTally
from mtpc.vocabulary.slots import SlotLanguages
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.new_requests import follow


class DeviceLanguages:
    """`SlotLanguages` of a speculator's batches, in buffers that never move: CUDA graphs read and write them.

    speculator: vLLM's own or ours; the slots of a batch are in its ``idx_mapping``.  states: the runner's
    ``RequestState``.  tally: counts what became of drafts, if metrics are watched.  said, rejected: int32 [B], new
    tokens of each request, and its drafts that were rejected.
    """

    def __init__(self, vocabularies: DraftVocabularies, speculator: Any, states: Any, watched: bool) -> None:
        assert vocabularies.detector is not None  # there are languages to tell apart
        rows, drafts, device = speculator.max_num_reqs, speculator.num_speculative_steps, speculator.device
        self.speculator, self.states = speculator, states
        self.slots = SlotLanguages(vocabularies.detector, rows, drafts, device)
        self.slots.tally = self.tally = SlotTally(vocabularies.names, drafts, device) if watched else None
        self.said = torch.zeros(rows, dtype=torch.int32, device=device)
        self.rejected = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.graphs = BatchGraphs(speculator, "languages", self._read)
        follow(states, self.slots.begin)

    def read(self, rows: int, said: Tensor, rejected: Tensor | None, eager: bool) -> None:
        """What so many requests have said in a step.

        said: int32 [at least B] tokens, and rejected: so many drafts; None: this step serves nobody, and no tally
        counts it.  eager: see `BatchGraphs.run`.
        """
        self.said[:rows] = said[:rows]
        if self.tally is not None:
            self.tally.begun |= rejected is not None
            self.rejected[:rows] = -1 if rejected is None else rejected[:rows]
        self.graphs.run(rows, eager=eager)

    def numbers(self, rows: int) -> Tensor:
        """Of their draft vocabularies, int64 [B]."""
        return self.slots.of(self.speculator.idx_mapping[:rows])

    def _read(self, rows: int) -> None:
        """From buffers to buffers."""
        texts, lengths = self.states.all_token_ids.gpu, self.states.total_len.gpu
        self.slots.read(texts, lengths, self.speculator.idx_mapping[:rows], self.said[:rows], self.rejected[:rows])
