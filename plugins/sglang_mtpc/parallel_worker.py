"""The worker of SGLang's scheduler for drafters without an autoregressive part: drafts in one shot, verified as EAGLE's are."""

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

from mtpc.draft import Draft, DraftContext
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc import served, verify
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree, Strategy
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.drafting import Drafting, Drafts, Inputs
from sglang_mtpc.metrics import Watch, watched
from sglang_mtpc.ranks import check_ranks, of_first_rank
from sglang_mtpc.step import Step, Steps
from sglang_mtpc.timing import step_of


class ParallelWorker(BaseSpecWorker):
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
        part = served.parallel(runner.model_config, self.device)
        self.drafting = Drafting(part, served.own_shape(), self.lengths is not None and self.shape.children == 1)
        self.steps = Steps(target_worker.random_seed)
        self.plan_stream, self.plan_stream_context = get_plan_stream(runner.device)
        ranks = parallel.tp_rank, parallel.dp_rank
        self.clock = DraftClock.from_environment(self.device, *ranks, metered=watched())
        self.watch = Watch.of_served(self.clock, None, self.shape.depth)
        self.strategy = self._strategy()
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
            batch.spec_info = self._draft(batch)
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

    def _strategy(self) -> Strategy:
        """What makes the drafts of a step."""
        if self.lengths is None:
            return self._whole
        vocab_size = self.drafting.parallel.vocab_size
        if self.shape.children > 1:
            return AdaptiveTree(self.lengths, self._whole, self.clock.lap, vocab_size)
        return AdaptiveChain(self.lengths, self._mixed, self.clock.lap, vocab_size)

    def _draft(self, batch: Any) -> Any:
        """What is known -> draft -> verification input."""
        with self.clock:
            draft_input = batch.spec_info
            drafts = self.strategy(batch, self.steps.begin(batch))
        return verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)

    def _whole(self, batch: Any, step: Step) -> Drafts:
        """The whole chain or tree of the window."""
        return self._drafted(batch, step, None)

    def _mixed(self, batch: Any, step: Step, copied: Copied, own: int) -> Draft:
        """The whole chain, of which so many tokens are wanted, mixed with what would be copied."""
        draft = self._drafted(batch, step, copied.first(self.drafting.shape.depth))
        assert isinstance(draft, Draft)
        return draft

    def _drafted(self, batch: Any, step: Step, copied: Copied | None) -> Drafts:
        states, tokens = of_first_rank(batch.spec_info.hidden_states), batch.spec_info.bonus_tokens.long()
        drafts = self.drafting(Inputs.of(DraftContext.of_target(states, tokens), step, copied), step.mode)
        self.clock.lap("parallel")
        return drafts

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
