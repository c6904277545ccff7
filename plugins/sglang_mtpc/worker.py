"""The worker of SGLang's scheduler that drafts with an MTPC drafter and verifies as EAGLE's worker does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_utils import default_tree_mask_mode
from sglang.srt.speculative.eagle_worker_common import build_eagle_verify_input, run_eagle_verify
from sglang.srt.speculative.spec_utils import get_plan_stream
from torch import Tensor

from mtpc.draft_clock import DraftClock
from mtpc.drafter import Draft, Target, TreeDraft, load_drafter
from mtpc.drafter.drafter import Mode
from sglang_mtpc import sampling
from sglang_mtpc.drafting import Drafting, GraphRecorder, Inputs
from sglang_mtpc.settings import Shape
from sglang_mtpc.verify_input import chain_links, tree_links


class MTPCWorker(BaseSpecWorker):
    """Drafts in one shot at the start of a decoding step; no draft model runner, no draft KV cache.

    Between steps a request carries two things only: the token that the target has sampled last and the hidden state
    that predicted it.  They travel in the ``EagleDraftInput``, which SGLang filters, merges and, where steps
    overlap, relays by request slot.
    """

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        spec, runner = get_spec(), target_worker.model_runner
        self._target_worker, self._draft_worker = target_worker, None
        self.device = torch.device(runner.device)
        self.shape = Shape(
            spec.speculative_num_steps, spec.speculative_eagle_topk, spec.speculative_num_draft_tokens - 1
        )
        self.config = runner.model_config
        whole = load_drafter(
            spec.speculative_draft_model_path,
            Target(self.config.hidden_size, self.config.vocab_size),
            dtype=self.config.dtype,
            device=self.device,
        )
        self.drafting = Drafting(whole.shortened(self.shape.steps), self.shape)
        self.steps = 0  # decoding steps so far: a key of the noise
        self.plan_stream, self.plan_stream_context = get_plan_stream(runner.device)
        parallel = get_parallel()
        self.clock = DraftClock.from_environment(self.device, parallel.tp_rank, parallel.dp_rank)
        sampling.install()

    def init_cuda_graphs(self) -> None:
        """Capture drafts for the batch sizes for which the target's verification is captured; on a CPU, compile one."""
        if self.device.type == "cpu":
            self.drafting.compile_for_one(self._hidden(1))
            return
        sizes = getattr(self.target_worker.model_runner.decode_cuda_graph_runner, "capture_bs", None)
        if sizes:
            self.drafting.capture(sizes, self._hidden(max(sizes)), GraphRecorder())

    def _hidden(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.config.hidden_size, dtype=self.config.dtype, device=self.device)

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
            result = self._verify(batch, grammar_barrier)
            width = self.shape.nodes + 1
            starts = torch.arange(0, len(result.accept_lens) * width, width, device=self.device)
            # SGLang has moved what was accepted to the front of each request's rows.
            hidden = result.logits_output.hidden_states[starts + result.accept_lens - 1]
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

    def _verify(self, batch: Any, grammar_barrier: Any) -> Any:
        draft_input = batch.spec_info
        with self.clock:
            drafts = self._draft(batch, draft_input.hidden_states, draft_input.bonus_tokens.long())
        batch.spec_info = self._verify_input(batch, draft_input, drafts)
        return run_eagle_verify(
            batch,
            target_worker=self.target_worker,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            plan_stream=self.plan_stream,
            plan_stream_ctx=self.plan_stream_context,
            topk=self.shape.children,
            num_draft_tokens=self.shape.nodes + 1,
            device=self.device.type,
            metadata_ready_pre_pad=False,
            finalize_tree_path=True,
            grammar_barrier=grammar_barrier,
        )

    def _draft(self, batch: Any, hidden: Tensor, token: Tensor) -> Draft | TreeDraft:
        info = batch.sampling_info
        mode: Mode = "greedy" if info.is_all_greedy else "mixed" if info.is_any_greedy else "sampled"
        # SGLang writes a temperature of 0 as a top-k of 1.
        temperature = info.temperatures[:, 0].masked_fill(info.top_ks == 1, 0.0)
        return self.drafting(Inputs(hidden, token, temperature, *self._noise_keys(batch)), mode)

    def _noise_keys(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Seeds and positions, int64 [B]: the request's own where SGLang keeps one, else the server's and the step's.

        SGLang keeps requests' seeds with ``--enable-deterministic-inference`` only.
        """
        self.steps += 1
        seeds = batch.sampling_info.sampling_seed
        if seeds is not None:
            return seeds, batch.seq_lens
        rows = torch.arange(len(batch.seq_lens), device=self.device)
        return rows + self.target_worker.random_seed, torch.full_like(rows, self.steps)

    def _verify_input(self, batch: Any, draft_input: Any, drafts: Draft | TreeDraft) -> Any:
        """SGLang's verification input; a chain's carries the distributions that its tokens were drawn from."""
        steps, children, nodes = self.shape
        if isinstance(drafts, TreeDraft):
            links, probs = tree_links(drafts.parents, children), None
        else:
            links, probs = chain_links(*drafts.tokens.shape, self.device), drafts.probs
        verify_input = build_eagle_verify_input(
            batch,
            draft_input,
            links.parents,
            links.selected,
            drafts.tokens.contiguous(),
            probs,
            target_worker=self.target_worker,
            topk=children,
            num_steps=nodes,  # see `tree_links`
            num_draft_tokens=nodes + 1,
            tree_mask_mode=default_tree_mask_mode(),
            device=self.device.type,
        )
        verify_input.spec_steps = steps
        verify_input.drafts = drafts  # for `sampling.judge`
        return verify_input
