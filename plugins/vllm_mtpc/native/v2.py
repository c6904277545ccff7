"""vLLM's own draft loops on Model Runner V2, with draft vocabularies by language and prompt lookup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed import get_tensor_model_parallel_rank

from mtpc.errors import exits_with_message
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import uses_prompt_lookup
from vllm_mtpc.native.head import NativeHead, restricted_head
from vllm_mtpc.native.settings import native_vocabularies
from vllm_mtpc.ranks import check_ranks
from vllm_mtpc.sleep_mode import check_languages, keep_while_asleep
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.mixing import MixingSpeculator


class NativeSpeculator(MixingSpeculator):
    """A base before one of vLLM's speculators, whose loop, CUDA graphs and verification stay as they are.

    Its protocol is that of vLLM's speculators, after `begin`.

    Attributes:
        head: The output head that is restricted to draft vocabularies; None if drafts are from all tokens.
        req_states: The runner's ``RequestState``.
    """

    head: NativeHead | None = None
    req_states: Any

    @classmethod
    @exits_with_message
    def begin(cls, speculator: Any, req_states: Any) -> None:
        """Make a speculator of vLLM's one of this class as well, before its model is loaded.

        Args:
            speculator: vLLM's.
            req_states: The runner's ``RequestState``.

        Raises:
            MTPCError: Ranks differ, or the table of prompt lookup is wrong, see `CopyTable.of`.
        """
        check_ranks(speculator.vllm_config)
        speculator.__class__ = type(cls.__name__, (cls, type(speculator)), {})
        speculator.req_states = req_states
        if uses_prompt_lookup(speculator.vllm_config.additional_config):
            folder = Path(speculator.vllm_config.speculative_config.draft_model_config.model)
            speculator._begin_copying(CopyTable.of(folder), req_states)

    @exits_with_message
    def load_model(self, target_model: nn.Module, *others: Any, **named: Any) -> None:
        """Load the model and restrict its output head.

        Args:
            target_model: vLLM's model of the target.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Raises:
            MTPCError: See `NativeHead` and `check_languages`.
        """
        super().load_model(target_model, *others, **named)
        vocabularies = native_vocabularies(self.vllm_config)
        if vocabularies is None or vocabularies.union() is None:
            return
        self.head = restricted_head(self, vocabularies, static=True)
        if vocabularies.detector is not None:
            check_languages(self.vllm_config)
            counts_metrics = metrics.enabled(get_tensor_model_parallel_rank())
            self.languages = DeviceLanguages(vocabularies, self, self.req_states, counts_metrics)
            if counts_metrics:
                metrics.export(self.vllm_config, None, self.languages.tally)
        keep_while_asleep(self.model, self.head)

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode, *others: Any, **named: Any) -> None:
        """Create the managers of CUDA graphs, vLLM's and those of `MixingSpeculator`.

        Args:
            cudagraph_mode: The target's.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.
        """
        super().init_cudagraph_manager(cudagraph_mode, *others, **named)
        self._prepare_graphs(cudagraph_mode)

    def capture(self, *given: Any, **named: Any) -> None:
        """Capture all CUDA graphs.

        Args:
            given: Arguments of vLLM's, passed on.
            named: Arguments of vLLM's, passed on.
        """
        super().capture(*given, **named)
        self._capture_graphs()

    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
        temperature: Tensor,
        seeds: Tensor,
        *,
        dummy_run: bool = False,
        is_profile: bool = False,
        **named: Any,
    ) -> Tensor:
        """Draft in vLLM's loop, after languages and prompt lookup.

        Args:
            input_batch: vLLM's ``InputBatch``.
            attn_metadata: Passed on.
            slot_mappings: Passed on.
            last_hidden_states: Passed on.
            aux_hidden_states: Passed on.
            num_sampled: int32 [B], tokens that each request emitted in this step.
            num_rejected: int32 [B], draft tokens of each request that were rejected.
            last_sampled: Passed on.
            next_prefill_tokens: Passed on.
            temperature: [slots].
            seeds: [slots].
            dummy_run: Whether the step has no requests.
            is_profile: Whether vLLM profiles memory, before there are graphs.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Draft tokens, int64 [B, K].
        """
        rows = input_batch.num_reqs
        self._copy_request_inputs(rows, input_batch.idx_mapping, temperature, seeds, dummy_run=dummy_run)
        self._begin_step(rows, num_sampled, num_rejected, dummy_run=dummy_run, is_profile=is_profile)
        drafts: Tensor = super().propose(
            input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
            num_rejected, last_sampled, next_prefill_tokens, temperature, seeds, dummy_run=dummy_run,
            is_profile=is_profile, **named,
        )  # fmt: skip
        return drafts

    def compute_draft_logits(self, hidden_states: Tensor, *others: Any, **named: Any) -> Tensor:
        """Compute the model's logits of draft vocabularies, mixed with prompt lookup; vLLM's loop calls it.

        Args:
            hidden_states: [B, d].
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Logits [B, V].
        """
        if self.head is not None and self.languages is not None:
            self.head.numbers = self.languages.numbers(len(hidden_states))
        return self._mixed(super().compute_draft_logits(hidden_states, *others, **named))
