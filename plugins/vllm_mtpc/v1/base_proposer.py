"""What the proposers of vLLM's V1 runner have in common: ranks, the drafting clock, emitted tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.errors import exits_with_message
from mtpc.metrics.draft_clock import DraftClock
from vllm_mtpc import metrics
from vllm_mtpc.ranks import check_ranks


class BaseProposer(EagleProposer):
    """Drafts in the place of vLLM's proposer.

    Protocol: vLLM calls ``load_model`` and ``initialize_attn_backend`` once, and `time_steps` on a CPU.  In each
    decoding step it calls `prepare_next_token_ids_padded` with the emitted tokens, then ``propose``, then
    ``take_last_draft_probs``.

    Attributes:
        clock: Measures drafting.
        counts_metrics: Whether this rank counts metrics.
        is_first_rank: Whether this is the first tensor-parallel rank.
    """

    counts_metrics = is_first_rank = False

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None, *others: Any, **named: Any) -> None:
        check_ranks(vllm_config)
        super().__init__(vllm_config, device, runner, *others, **named)
        rank = get_tensor_model_parallel_rank()
        self.is_first_rank, self.counts_metrics = rank == 0, metrics.enabled(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.counts_metrics)

    @abstractmethod
    def time_steps(self, runner: Any) -> None:
        """Time the target's decoding steps and the drafter, if draft lengths are chosen by their costs.

        Args:
            runner: vLLM's V1 runner.
        """

    @abstractmethod
    def _begin_step(
        self, ids: Sequence[str], requests: dict[str, Any], tokens: Tensor, unread: Tensor, input_batch: Any
    ) -> None:
        """Begin a step with the tokens that the target has just emitted; see `prepare_next_token_ids_padded`."""

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor,
        *others: Any,
        **named: Any,
    ) -> tuple[Tensor, Tensor]:
        """Read the emitted tokens and find the last one of each request; vLLM calls it before ``propose``.

        Args:
            sampled_token_ids: int [B, K + 1], -1 for rejected tokens.
            requests: All unfinished requests of vLLM by id.
            gpu_input_batch: vLLM's input batch.
            discard_request_mask: bool [at least B], whether a part of the prompt is still to be prefilled.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            The last emitted token and the number of emitted tokens of each request, int32 [B] both.
        """
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        unread = discard_request_mask[: len(ids)]
        self._begin_step(ids, requests, sampled_token_ids, unread, gpu_input_batch)
        prepared: tuple[Tensor, Tensor] = super().prepare_next_token_ids_padded(
            sampled_token_ids, requests, gpu_input_batch, discard_request_mask, *others, **named
        )
        return prepared
