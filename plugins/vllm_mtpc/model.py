"""The class that vLLM's model loader builds for a drafter directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mtpc.drafter import Drafter, load_drafter, read_config
from vllm_mtpc.settings import target_of


class EagleMTPCForCausalLM(nn.Module):
    """Holds a `Drafter` in the target's dtype, on the target's device, whole on every tensor-parallel rank.

    vLLM requires the methods of a language model of every model class; a drafter is called through
    `drafter` alone, by the proposer of the runner that serves it.
    """

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        draft, target = vllm_config.speculative_config.draft_model_config, vllm_config.model_config
        self.config = draft.hf_config
        self.folder = Path(draft.model)
        self.num_drafts = vllm_config.speculative_config.num_speculative_tokens
        self.target = target_of(target)
        self.drafter = Drafter(read_config(self.folder))

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the directory strictly; vLLM's own iterator over its tensors would not see what is missing.

        Positions of the window that are never drafted are left out.  Returns the names of all tensors.
        Errors: `MTPCError`, see `mtpc.drafter.load_drafter`.
        """
        placed = next(self.drafter.parameters())
        whole = load_drafter(self.folder, self.target, dtype=placed.dtype, device=placed.device)
        self.drafter = whole.shortened(self.num_drafts)
        return {f"drafter.{name}" for name in self.drafter.state_dict()}

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Part of vLLM's interface; a drafter embeds no tokens."""
        raise RuntimeError("an MTPC drafter is not run token by token")

    def forward(self, input_ids: Tensor, positions: Tensor, **_: Any) -> Tensor:
        """Part of vLLM's interface; see `mtpc.drafter.Drafter.draft`."""
        raise RuntimeError("an MTPC drafter is not run token by token")

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Part of vLLM's interface; a draft comes with its distributions."""
        raise RuntimeError("an MTPC drafter is not run token by token")
