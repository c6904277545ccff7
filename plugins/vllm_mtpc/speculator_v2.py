"""Drafting on vLLM's Model Runner V2, in a CUDA graph where the target runs in one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.model_loader.utils import get_draft_load_config
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

from mtpc.draft_clock import DraftClock
from mtpc.noise import counter_uniforms
from vllm_mtpc.final_norm import final_norm

FLOOR = torch.finfo(torch.float32).tiny  # stands for a probability of 0: its logarithm is finite


class MTPCSpeculator(DraftModelSpeculator):
    """Drafts all tokens in one shot from the target's last hidden state; no attention, no KV cache.

    Between `propose` and the draft lie buffers that never move, so the draft can be captured once for each batch
    size.  Noise is a function of the request's seed and position, so every tensor-parallel rank drafts the same,
    from its own whole copy of the drafter; nothing is exchanged, so data-parallel ranks need not agree on a shape.
    """

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        rows, drafts = self.max_num_reqs, self.num_speculative_steps
        self.hidden = torch.zeros(rows, self.hidden_size, dtype=self.dtype, device=device)
        self.next_tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.positions = torch.zeros(rows, dtype=torch.int64, device=device)
        self.slot_logits: Tensor | None = None  # [slots + 1, K, V]; padded rows write to the last one
        if self.speculative_config.draft_sample_method == "probabilistic":
            self.slot_logits = torch.zeros(rows + 1, drafts, self.vocab_size, dtype=torch.float32, device=device)
            self.draft_logits = self.slot_logits[:rows]
        self.graphs: CudaGraphManager | None = None
        self.clock = DraftClock.from_environment(device, get_tensor_model_parallel_rank(), self.dp_rank)

    def draft_logits_spec(self, vllm_config: Any) -> tuple[torch.dtype, float]:
        """float32: distributions rounded to bfloat16 are not the ones that were drawn from."""
        return torch.float32, 0.0

    def load_draft_model(self, target_model: nn.Module, target_attn_layer_names: set[str]) -> nn.Module:
        """Load the drafter; it shares nothing with the target."""
        config = self.speculative_config.apply_draft_overrides(self.vllm_config)
        model = get_model(
            vllm_config=config, model_config=self.draft_model_config, load_config=get_draft_load_config(config)
        )
        self.drafter = model.drafter
        self.final_norm = final_norm(target_model)
        return model

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        """One graph for each batch size, if the target's decoding steps run in graphs."""
        full = cudagraph_mode.decode_mode() == CUDAGraphMode.FULL and not self.speculative_config.enforce_eager
        mode = CUDAGraphMode.FULL_DECODE_ONLY if full else CUDAGraphMode.NONE
        self.graphs = CudaGraphManager(self.vllm_config, self.device, mode, decode_query_len=1)

    def capture(self) -> None:
        """Capture the draft of every batch size; no row belongs to a request meanwhile."""
        assert self.graphs is not None
        self.idx_mapping.fill_(-1)
        self.graphs.capture(
            lambda desc, warmup: lambda mode: self._draft(desc.num_reqs), "Capturing MTPC drafts in CUDA graphs"
        )

    def _draft(self, rows: int) -> None:
        """From buffers to buffers: `draft_tokens` [:rows] and, by request slot, `slot_logits`."""
        hidden, token = self.hidden[:rows], self.next_tokens[:rows]
        if self.slot_logits is None:
            draft = self.drafter.draft(hidden, token, None, None, self.num_speculative_steps, "greedy")
            self.draft_tokens[:rows] = draft.tokens
            return
        slots = self.idx_mapping[:rows]  # [B], -1 for padded rows
        temperature = self.temperature[slots]
        noise = counter_uniforms(self.seeds[slots], self.positions[:rows], self.drafter.noise_size)
        draft = self.drafter.draft(hidden, token, temperature, noise, self.num_speculative_steps, "mixed")
        assert draft.probs is not None
        self.draft_tokens[:rows] = draft.tokens
        # vLLM divides by the temperature when it reads: T log q comes back as exactly q.
        scale = torch.where(temperature > 0, temperature, 1.0)
        logits = draft.probs.clamp_min(FLOOR).log() * scale[:, None, None]
        self.slot_logits.index_copy_(0, torch.where(slots < 0, self.max_num_reqs, slots), logits)

    @torch.inference_mode()
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
        dp_sync_state: Any = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        mm_inputs: tuple[list[Tensor], Tensor] | None = None,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
    ) -> Tensor:
        """Drafted tokens, int64 [B, K]; their distributions wait in `draft_logits` [slots, K, V].

        last_hidden_states: [T, d] of all scheduled tokens.  num_sampled, num_rejected: int32 [B] of this step.
        last_sampled [slots, 1], next_prefill_tokens [lookahead, slots], temperature and seeds [slots]: by slot.
        """
        rows = input_batch.num_reqs
        slots = input_batch.idx_mapping[:rows]
        with self.clock:
            self._copy_request_inputs(rows, slots, temperature, seeds, dummy_run=dummy_run)
            last = input_batch.query_start_loc[1 : rows + 1] - 1 - num_rejected[:rows]  # last accepted token, [B]
            self.hidden[:rows] = self.final_norm(last_hidden_states[last])
            self.positions[:rows] = input_batch.positions[last]
            # While a prompt is being read nothing has been sampled: the next token is the prompt's.
            self.next_tokens[:rows] = torch.where(
                num_sampled[:rows] > 0, last_sampled[slots, 0].long(), next_prefill_tokens[0, slots].long()
            )
            self._run(rows, eager=is_profile)
        return self.draft_tokens[:rows]

    def _run(self, rows: int, eager: bool) -> None:
        """Replay the graph of the next larger batch size, or draft eagerly where there is none."""
        if not eager:
            assert self.graphs is not None
            batch = self.graphs.dispatch(rows, rows, uniform_token_count=1, num_active_loras=0)
            if batch.cg_mode == CUDAGraphMode.FULL:
                self.graphs.run_fullgraph(batch)
                return
        self._draft(rows)
