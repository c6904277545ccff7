"""Draft lengths that SGLang adapts (``--speculative-adaptive``), for workers of this project.

SGLang chooses a length for each step by batch size and observed acceptance, before it drafts.  For each length it holds
a runtime state: attention backends and, on a GPU, CUDA graphs that verify drafts of this length.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.model_executor.runner import DecodeCudaGraphRunner
from sglang.srt.runtime_context import get_context, get_spec
from sglang.srt.speculative.adaptive_runtime_state import AdaptiveController, SpecRuntimeState
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from sglang_mtpc.native_settings import PACKAGE


def shared_state(target: Any, steps: int, tokens: int, draft: Any = None) -> SpecRuntimeState:
    """Return a runtime state that shares all but its numbers: on a CPU nothing is captured for a length.

    Args:
        target: SGLang's ``ModelRunner`` of the target.
        steps: Draft tokens.
        tokens: Verified tokens of each request, root included.
        draft: SGLang's draft worker; None: there is no draft model.
    """
    return SpecRuntimeState(
        speculative_num_steps=steps,
        speculative_num_draft_tokens=tokens,
        draft_attn_backend=getattr(draft, "draft_attn_backend", None),
        cuda_graph_runner=getattr(draft, "cuda_graph_runner", None),
        target_attn_backend=target.attn_backend,
        target_graph_runner=target.decode_cuda_graph_runner,
        draft_extend_attn_backend=getattr(draft, "draft_extend_attn_backend", None),
        cuda_graph_runner_for_draft_extend=getattr(draft, "cuda_graph_runner_for_draft_extend", None),
    )


def without_drafts(worker: Any, batch: Any) -> Any:
    """Return SGLang's ``EagleVerifyInput`` of a step that drafts nothing.

    SGLang's rejection sampling requires draft distributions also where there are no drafts, and does not read them.

    Args:
        worker: A worker with the attributes of SGLang's ``EAGLEWorkerV2``.
        batch: SGLang's ``ScheduleBatch``.
    """
    built = EAGLEWorkerV2._build_trivial_verify_input(worker, batch)
    vocab_size = worker.target_worker.model_config.vocab_size
    built.draft_probs = torch.empty(len(batch.reqs), 0, vocab_size, device=built.draft_token.device)
    return built


class TargetStates:
    """The runtime states of a worker that has no draft model: those of the target alone.

    `prepare` is called once, while the server starts; then `activate` before each decoding step.

    Args:
        target: SGLang's ``ModelRunner`` of the target.

    Attributes:
        speculative_num_steps: Draft tokens of the current step.
    """

    def __init__(self, target: Any) -> None:
        spec = get_spec()
        self.target, self.speculative_num_steps = target, spec.speculative_num_steps
        policy = AdaptiveSpeculativeParams(
            initial_steps=self.speculative_num_steps, cfg_path=spec.speculative_adaptive_config
        )
        self.controller = AdaptiveController(self, policy)

    def prepare(self) -> None:
        """Build the states of all lengths; the target must have its attention backend and CUDA graphs."""
        steps = self.speculative_num_steps
        self.controller.register(shared_state(self.target, steps, steps + 1))
        self.controller.init_states()  # captures all batch sizes for each length, as with SGLang's own drafters

    def activate(self, requests: int) -> None:
        """Enter the state of a batch with this number of requests."""
        self.controller.activate_step_by_batch(requests)

    def verified(self, accepted: list[int], requests: int) -> None:
        """Report the accepted draft tokens of each request of a step, by which the next length is chosen."""
        self.controller.on_verify_complete(accepted, batch_size=requests)

    def build_adaptive_runtime_state(
        self, speculative_num_steps: int, speculative_num_draft_tokens: int, cuda_graph_bs: list[int] | None = None
    ) -> SpecRuntimeState:
        """Build a state, see SGLang's ``AdaptiveSpecWorker``."""
        target = self.target
        sizes = {
            "speculative_num_steps": speculative_num_steps,
            "speculative_num_draft_tokens": speculative_num_draft_tokens,
        }
        state = shared_state(target, *sizes.values())
        if torch.device(target.device).type == "cpu":
            return state
        with get_spec().override(**sizes):
            makes_workspaces = target.init_new_workspace
            state.target_attn_backend = target._get_attention_backend(init_new_workspace=True)
            target.init_new_workspace, state.target_graph_runner = makes_workspaces, None
            if not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
                state.target_graph_runner = DecodeCudaGraphRunner(
                    target, attn_backend=state.target_attn_backend, **sizes
                )
        return state

    def apply_runtime_state(self, state: SpecRuntimeState) -> None:
        """Enter a state, see SGLang's ``AdaptiveSpecWorker``."""
        self.speculative_num_steps = state.speculative_num_steps
        self.target.attn_backend = state.target_attn_backend
        self.target.decode_cuda_graph_runner = state.target_graph_runner
        get_context().override(
            PACKAGE,
            speculative_num_steps=state.speculative_num_steps,
            speculative_num_draft_tokens=state.speculative_num_draft_tokens,
        )
