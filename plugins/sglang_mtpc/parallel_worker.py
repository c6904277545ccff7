"""Worker of SGLang's scheduler for drafters without an autoregressive part; drafts are verified like EAGLE's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.runtime_context import get_parallel, get_schedule, get_spec
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_worker_common import run_eagle_verify
from sglang.srt.speculative.spec_utils import get_plan_stream
from torch import Tensor

from mtpc.draft import Draft, DraftContext
from mtpc.metrics.draft_clock import DraftClock
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import served, verify
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree, Strategy
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.draft_limits import keep_limits
from sglang_mtpc.draft_strategies import ParallelDrafts
from sglang_mtpc.drafter_head import DrafterHead
from sglang_mtpc.drafting import Drafting
from sglang_mtpc.metrics import DraftMetrics, metrics_enabled
from sglang_mtpc.ranks import check_ranks
from sglang_mtpc.request_vocabularies import SGLangRequestVocabularies
from sglang_mtpc.runtime_states import TargetStates, without_drafts
from sglang_mtpc.step import BatchSteps
from sglang_mtpc.target_modules import target_module
from sglang_mtpc.timing import make_dummy_step
from sglang_mtpc.weight_updates import warn_of_update


class ParallelWorker(BaseSpecWorker):
    """Drafts with the parallel part at the start of each decoding step, without draft model runner or draft KV cache.

    Between steps a request carries the last token that the target sampled, and the hidden state that predicted it.
    Both are in ``EagleDraftInput``, which SGLang filters, merges and, with overlapping steps, relays by request slot.

    SGLang creates it, then calls `init_cuda_graphs`, then `forward_batch_generation` for each step.

    Attributes:
        metrics: Counts drafts; None: metrics are disabled.
        vocabularies: Draft vocabularies; None: the whole vocabulary is drafted.
        requests: Draft vocabularies of the batch; None: all requests use one.
        states: Target states of the draft lengths that SGLang adapts; None: drafts have the length of ``shape``.
        topk: Children of a node, as SGLang's functions read it.
    """

    metrics: DraftMetrics | None = None
    vocabularies: DraftVocabularies | None = None
    requests: SGLangRequestVocabularies | None = None
    states: TargetStates | None = None

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        check_ranks(Path(served.folder()))
        runner, parallel = target_worker.model_runner, get_parallel()
        self._target_worker, self._draft_worker = target_worker, None
        self.device = torch.device(runner.device)
        self.shape = served.shape()
        self.topk = self.shape.children
        self.steps = BatchSteps(target_worker.random_seed)
        self.plan_stream, self.plan_stream_context = get_plan_stream(runner.device)
        ranks = parallel.tp_rank, parallel.dp_rank
        self.clock = DraftClock.from_environment(self.device, *ranks, metered=metrics_enabled())
        self.strategy = self._load(runner.model_config)
        self.metrics = DraftMetrics.of_served(self.clock, self.vocabularies, self.shape.depth)
        if self.requests is not None and self.metrics is not None:
            self.requests.tally = self.metrics.tally
        if get_spec().speculative_adaptive:
            self.states = TargetStates(runner)
        verify.install()

    def init_cuda_graphs(self) -> None:
        """Capture or compile drafting, and time decoding steps on a CPU."""
        config = self.target_worker.model_runner.model_config
        states = torch.zeros(1, config.hidden_size, dtype=config.dtype, device=self.device)
        graphs = getattr(self, "_additional_graph_memory_usage", {})  # {}: not reported by this SGLang
        self.drafting.prepare(self.target_worker.model_runner, states, graphs)
        if self.states is not None:
            self.states.prepare()
        if self.lengths is not None:
            step, most = make_dummy_step(self.target_worker.model_runner), get_schedule().max_running_requests
            self.lengths.time_steps(
                step, lambda requests: self.drafting.draft_dummy(states[None].repeat(requests, 1, 1)), most
            )

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Callable[[Tensor], None] | None = None,
        grammar_barrier: Any = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        """Run one step of the scheduler: a prompt's forward pass, or draft and verify.

        Args:
            batch: SGLang's ``ScheduleBatch``.
            on_publish: Called with the new sequence lengths, int64 [B], as soon as they are known.
            grammar_barrier: SGLang's, passed on to verification.
            pp_proxy_tensors: Not used: pipeline parallelism is rejected.

        Returns:
            SGLang's ``GenerationBatchResult``, with the input of the next draft.
        """
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch, capture_hidden_mode=CaptureHiddenMode.LAST)
            result.new_seq_lens = batch.seq_lens
            hidden, token = result.logits_output.hidden_states, result.next_token_ids
        else:
            if self.requests is not None:
                self.requests.choose(batch.reqs)
            if self.metrics is not None:
                self.metrics.begin_step(batch, None if self.requests is None else self.requests.chosen)
            if self.states is not None:
                self.states.activate(len(batch.reqs))
            batch.spec_info = self._draft(batch)
            if self.metrics is not None:
                self.metrics.set_length(batch.spec_info.spec_steps)
            result = self._verify(batch, grammar_barrier)
            hidden = verify.last_accepted(result)
            token = result.next_draft_input.bonus_tokens
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        empty = torch.empty(len(token), 0, device=self.device)  # SGLang filters and merges it
        result.next_draft_input = EagleDraftInput(
            topk_p=empty,
            topk_index=empty.long(),
            hidden_states=hidden,
            bonus_tokens=token,
            capture_hidden_mode=CaptureHiddenMode.LAST,
        )
        return result

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        """Count accepted tokens; SGLang calls it for each step in order, when the counts are on the host."""
        if self.states is not None:
            self.states.verified(num_correct_drafts_per_req, batch_size)
        if self.metrics is not None:
            self.metrics.verified(num_correct_drafts_per_req)

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        """Return no runner: updates of the target's weights leave the drafter as it is."""
        warn_of_update()
        return []

    def _load(self, model_config: Any) -> Strategy:
        """Load and announce the drafter, and return the strategy of each step."""
        self.lengths = WorkerLengths.of_served(self.device)
        part = served.load_parallel_part(model_config, self.device)
        head: DrafterHead | None = None
        with_head_inputs: Callable[[DraftContext], DraftContext] | None = None
        if part.reads_head:
            head, target = self._share_head(model_config), self.target_worker.model_runner.model
            with_head_inputs = partial(_with_head_inputs, target_module(target, "model.embed_tokens"), head)
        copies = self.lengths is not None and self.shape.children == 1
        self.drafting = Drafting(part, served.drafter_shape(), copies, with_head_inputs)
        served.announce(None if head is None else head.draft_logits, 0)
        return self._strategy()

    def _share_head(self, model_config: Any) -> DrafterHead:
        """Share the target's output head, and choose draft vocabularies by request if there are several.

        Raises:
            MTPCError: See `served.vocabularies`, `target_module` and `DrafterHead`.
        """
        numbers, vocabularies = None, served.vocabularies(model_config.model_path, self.device)
        if vocabularies is not None and self.device.type != "cpu":
            vocabularies = vocabularies.union()  # in CUDA graphs a parallel part drafts from it
        if vocabularies is not None and vocabularies.detector is not None:
            rows = get_schedule().max_running_requests
            self.requests = SGLangRequestVocabularies(vocabularies.detector, rows, self.device)
            numbers = self.requests.numbers
        self.vocabularies, target = vocabularies, self.target_worker.model_runner.model
        return DrafterHead(target_module(target, "lm_head"), served.config(), model_config.dtype, vocabularies, numbers)

    def _strategy(self) -> Strategy:
        """Return the strategy of each step."""
        whole = ParallelDrafts(self.drafting, self.clock.lap)
        if self.lengths is None:
            return whole
        vocab_size = self.drafting.parallel.vocab_size
        if self.shape.children > 1:
            return AdaptiveTree(self.lengths, whole, self.clock.lap, vocab_size)
        return AdaptiveChain(self.lengths, whole.mixed, self.clock.lap, vocab_size)

    def _draft(self, batch: Any) -> Any:
        """Draft, and return SGLang's ``EagleVerifyInput``."""
        length = self.shape.nodes if self.states is None else self.states.speculative_num_steps
        if not length:
            return without_drafts(self, batch)
        with self.clock:
            draft_input = batch.spec_info
            drafts = self.strategy(batch, self.steps.begin(batch))
            if isinstance(drafts, Draft):
                drafts = drafts.first(length)
        built = verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)
        keep_limits(built, batch.reqs, self.shape.children == 1)
        return built

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


def _with_head_inputs(embed: Callable[[Tensor], Tensor], head: DrafterHead, known: DraftContext) -> DraftContext:
    """Add the target's embeddings of the tokens and its output head to the draft context of a batch."""
    inputs = embed(known.tokens.flatten()).unflatten(0, known.tokens.shape).to(known.states.dtype)
    return known._replace(inputs=inputs, head=head.head(len(known.tokens)))
