"""What every speculator of Model Runner V2 does around vLLM's draft loop: draft vocabularies and prompt lookup."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

from mtpc.draft_length.limit import ignore_limits
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.request_parameters import limit_of
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.new_requests import on_new_request
from vllm_mtpc.v2.prompt_lookup import DeviceCopying, texts_on_device


class MixingSpeculator(DraftModelSpeculator):
    """A speculator whose loop draws from a mixture of its model's distribution and prompt lookup.

    It is a base before one of vLLM's speculators.

    Protocol: `_begin_copying` before there are requests; `_prepare_graphs` and `_capture_graphs` once; `_begin_step`
    before vLLM's loop in each step.  The loop's ``compute_draft_logits`` returns `_mixed`.

    Attributes:
        languages: Chooses draft vocabularies; None if there is no choice.
        copying: Prompt lookup; None if it is off.
        copy_graphs: Its CUDA graphs.
    """

    languages: DeviceLanguages | None = None
    copying: DeviceCopying | None = None
    copy_graphs: BatchGraphs

    def _begin_copying(self, table: CopyTable, req_states: Any) -> None:
        """Let prompt lookup draft as well.

        Args:
            table: Probabilities of prompt lookup.
            req_states: The runner's ``RequestState``, whose tokens move to the device.
        """
        texts, lengths = texts_on_device(req_states, self.device), req_states.total_len.gpu
        rows, drafts = self.max_num_reqs, self.num_speculative_steps
        self.copying = copying = DeviceCopying(table, texts, lengths, rows, drafts, self.vocab_size)
        self.copy_graphs = BatchGraphs(self, "prompt_lookup", self._look_up)
        on_new_request(req_states, lambda _, slot, __: copying.slots.begin(slot))

    def begin_request(self, slot: int, request: Any) -> None:
        """Read the sampling parameters of a new request, or of a preempted one that returns.

        Args:
            slot: Its slot.
            request: vLLM's ``NewRequestData``.
        """
        ignore_limits([limit_of(request)], "all drafts of Model Runner V2 have num_speculative_tokens tokens")

    def _graphs(self) -> list[BatchGraphs]:
        """Return the graphs that are in use, without vLLM's."""
        used = [] if self.languages is None else [self.languages.graphs]
        return used + ([] if self.copying is None else [self.copy_graphs])

    def _prepare_graphs(self, cudagraph_mode: CUDAGraphMode) -> None:
        for graphs in self._graphs():
            graphs.prepare(cudagraph_mode)

    def _capture_graphs(self) -> None:
        self.idx_mapping.fill_(-1)
        for graphs in self._graphs():
            graphs.capture()

    def _begin_step(
        self, rows: int, num_sampled: Tensor, num_rejected: Tensor, *, dummy_run: bool, is_profile: bool
    ) -> None:
        """Find each request's draft vocabulary and the tokens of prompt lookup, once the batch is in the buffers."""
        if self.languages is not None:
            self.languages.read(rows, num_sampled, None if dummy_run else num_rejected, eager=is_profile)
        if self.copying is not None:
            self.copying.num_sampled[:rows] = num_sampled[:rows]
            self.copy_graphs.run(rows, eager=is_profile)

    def _look_up(self, rows: int) -> None:
        """Run prompt lookup, from buffers to buffers."""
        assert self.copying is not None
        self.copying.propose(self.idx_mapping[:rows])

    def _mixed(self, logits: Tensor) -> Tensor:
        """Mix the logits of the current draft step, [B, V], with prompt lookup; in the dtype that vLLM keeps them in.

        vLLM draws from what is returned here and verifies with the same numbers, whatever their precision.
        """
        if self.copying is not None:
            temperature = None if self.draft_logits is None else self.temperature[self.idx_mapping[: len(logits)]]
            logits = self.copying.mixed(logits, self.current_draft_step, temperature)
        return logits if self.draft_logits is None else logits.to(self.draft_logits.dtype)

    def sample_draft(self, hidden_states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Draft the loop's next token; vLLM's loop calls it.

        The number of the draft step is read on the device, because a CUDA graph is the same for all steps.

        Args:
            hidden_states: [B, d].
            arguments: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Tokens, int64 [B].
        """
        tokens: Tensor = super().sample_draft(hidden_states, *arguments, **named)
        if self.copying is not None:
            self.copying.drafted(tokens, self.current_draft_step)
        return tokens
