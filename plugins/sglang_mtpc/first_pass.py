"""The first pass of a serial part of one layer, where it waits for a step that drafts.

All that others read of what a step has accepted are that layer's keys and values: a step in which nothing is drafted
computes these alone, where SGLang makes the whole pass at its end.  A step that drafts makes it when it begins, after
the last accepted token of each request, as one of those of SGLang's draft loop.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft
from torch import Tensor

from sglang_mtpc import verify


def remember(worker: Any, batch: Any, batch_result: Any) -> None:
    """The keys of what was verified, and of each request the target's state, from which the next step may draft.

    worker: an ``EagleDraftWorker``.  batch_result: SGLang's ``GenerationBatchResult`` of the step, whose
    ``next_draft_input`` becomes that of a step without a first draft.
    """
    width, next_input = worker.speculative_num_draft_tokens, batch_result.next_draft_input
    positions = (batch.seq_lens[:, None] + torch.arange(width, device=batch.seq_lens.device)).flatten()
    states, pool = batch_result.logits_output.hidden_states, worker.draft_runner.token_to_kv_pool
    tokens = batch_result.next_token_ids.long()
    worker.draft_runner.model.model.remember(tokens, positions, states, pool, batch.out_cache_loc)
    nothing_yet = states.new_zeros(len(batch.seq_lens), 1, dtype=torch.float32)
    next_input.topk_p, next_input.topk_index = nothing_yet, nothing_yet.long()
    if get_spec().speculative_use_rejection_sampling:
        next_input.draft_probs = nothing_yet
    next_input.hidden_states = verify.last_accepted(batch_result)


def first_states(worker: Any, batch: Any) -> Tensor:
    """The layer's states [B, d] after the target's of each request's last accepted token, whose keys there are.

    worker: an ``EagleDraftWorker``.
    """
    from sglang.srt.model_executor.forward_context import ForwardContext, forward_context  # for this alone

    draft_input, backend = batch.spec_info, worker.draft_attn_backend
    lengths = batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = lengths[0] - 1, lengths[1] - 1, None  # SGLang adds up
    draft_input.first = True
    try:
        prepared = prepare_for_draft(draft_input, worker.req_to_token_pool, batch, None, worker.draft_runner, 1, 1)[0]
        prepared.input_ids = draft_input.bonus_tokens.long()
        backend.init_forward_metadata(prepared)
        prepared.mark_forward_metadata_ready()
        with forward_context(ForwardContext(attn_backend=backend.attn_backends[0])):
            states: Tensor = worker.draft_runner.forward(prepared).logits_output.hidden_states
    finally:
        draft_input.first = False
        batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = lengths
    return states
