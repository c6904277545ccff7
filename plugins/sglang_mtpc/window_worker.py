"""The worker of SGLang's scheduler for drafters without a serial part: drafts in one shot, verified as EAGLE's are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.runtime_context import get_parallel, get_schedule
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_worker_common import run_eagle_verify
from sglang.srt.speculative.spec_utils import get_plan_stream
from torch import Tensor

from mtpc.draft import Draft, Known, TreeDraft
from mtpc.metrics.draft_clock import DraftClock
from sglang_mtpc import served, verify
from sglang_mtpc.draft_lengths import WorkerLengths, nothing
from sglang_mtpc.drafting import Drafting, Inputs
from sglang_mtpc.metrics import Watch, watched
from sglang_mtpc.ranks import check_ranks, of_first_rank
from sglang_mtpc.step import Step, Steps
from sglang_mtpc.timing import step_of


class WindowWorker(BaseSpecWorker):
    """Drafts at the start of a decoding step; no draft model runner, no draft KV cache.

    Between steps a request carries two things only: the token that the target has sampled last and the hidden state
    that predicted it.  They travel in the ``EagleDraftInput``, which SGLang filters, merges and, where steps
    overlap, relays by request slot.

    watch: counts what became of drafts; None: nobody watches.
    """

    watch: Watch | None = None

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        check_ranks(Path(served.folder()))
        runner, parallel = target_worker.model_runner, get_parallel()
        self._target_worker, self._draft_worker = target_worker, None
        self.device = torch.device(runner.device)
        self.shape = served.shape()
        self.lengths = WorkerLengths.of_served(self.device)
        window = served.window(runner.model_config, self.device)
        self.drafting = Drafting(window, served.own_shape(), self.lengths is not None and self.shape.children == 1)
        self.steps = Steps(target_worker.random_seed)
        self.plan_stream, self.plan_stream_context = get_plan_stream(runner.device)
        ranks = parallel.tp_rank, parallel.dp_rank
        self.clock = DraftClock.from_environment(self.device, *ranks, metered=watched())
        self.watch = Watch.of_served(self.clock, None, self.shape.depth)
        served.announce(None, 0)
        verify.install()

    def init_cuda_graphs(self) -> None:
        """Capture or compile the drafts."""
        config = self.target_worker.model_runner.model_config
        states = torch.zeros(1, config.hidden_size, dtype=config.dtype, device=self.device)
        graphs = getattr(self, "_additional_graph_memory_usage", {})  # {}: this SGLang does not tell
        self.drafting.prepare(self.target_worker.model_runner, states, graphs)
        if self.lengths is not None:
            step, most = step_of(self.target_worker.model_runner), get_schedule().max_running_requests
            self.lengths.time(
                step, lambda requests: self.drafting.for_nobody(states[None].repeat(requests, 1, 1)), most
            )

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Callable[[Tensor], None] | None = None,
        grammar_barrier: Any = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        """One step of the scheduler: a prompt's forward pass, or draft and verify.

        Returns SGLang's ``GenerationBatchResult``, with the input of the next draft.
        """
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch, capture_hidden_mode=CaptureHiddenMode.LAST)
            result.new_seq_lens = batch.seq_lens
            hidden, token = result.logits_output.hidden_states, result.next_token_ids
        else:
            if self.watch is not None:
                self.watch.drafting(batch, None)
            batch.spec_info = self._draft(batch, batch.spec_info)
            if self.watch is not None:
                self.watch.cut(batch.spec_info.spec_steps)
            result = self._verify(batch, grammar_barrier)
            hidden = verify.last_accepted(result)
            token = result.next_draft_input.bonus_tokens
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        nothing = torch.empty(len(token), 0, device=self.device)  # filtered and merged, so it must be there
        result.next_draft_input = EagleDraftInput(
            topk_p=nothing,
            topk_index=nothing.long(),
            hidden_states=hidden,
            bonus_tokens=token,
            capture_hidden_mode=CaptureHiddenMode.LAST,
        )
        return result

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        """Called by SGLang, step after step, once it has the verdicts on the host."""
        if self.watch is not None:
            self.watch.verified(num_correct_drafts_per_req)

    def _draft(self, batch: Any, draft_input: Any) -> Any:
        """What is known -> draft -> verification input."""
        drafts: Draft | TreeDraft
        with self.clock:
            step = self.steps.begin(batch)
            states = of_first_rank(draft_input.hidden_states)
            known = Known.of_target(states, draft_input.bonus_tokens.long())
            if self.lengths is None:
                drafts = self.drafting(Inputs.of(known, step), step.mode)
                self.clock.lap("window")
            else:
                drafts = self._draft_adaptively(self.lengths, batch.reqs, known, step)
                self.clock.lap("lengths")
        return verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)

    def _draft_adaptively(self, lengths: WorkerLengths, requests: Any, known: Known, step: Step) -> Draft | TreeDraft:
        """A draft of the length of this step: the window's, mixed with what would be copied, then that alone."""
        lengths.begin(requests, step.mode == "greedy")
        chosen, drafts = lengths.choose(), nothing(known.tokens[:, 0], self.drafting.window.vocab_size, step.mode)
        self.clock.lap("lengths")
        if self.shape.children > 1:
            if not chosen.length:
                return drafts
            lengths.controller.drafted_trees(self.shape.depth)
            return self.drafting(Inputs.of(known, step), step.mode)
        copied = lengths.copied(self.shape.depth)
        copies_alone = chosen.length and not lengths.controller.budget.tokens  # by a window that copies
        if chosen.own or copies_alone:
            made = self.drafting(Inputs.of(known, step, copied.first(self.drafting.shape.depth)), step.mode)
            assert isinstance(made, Draft)  # of a chain
            drafts = made
            self.clock.lap("window")
        return lengths.completed(drafts, copied, chosen)

    def _verify(self, batch: Any, grammar_barrier: Any) -> Any:
        return run_eagle_verify(
            batch,
            target_worker=self.target_worker,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            plan_stream=self.plan_stream,
            plan_stream_ctx=self.plan_stream_context,
            topk=self.shape.children,
            num_draft_tokens=batch.spec_info.draft_token_num,
            device=self.device.type,
            metadata_ready_pre_pad=False,
            finalize_tree_path=True,
            grammar_barrier=grammar_barrier,
        )
