"""Properties of a drafter's speculative algorithm, by which SGLang dispatches."""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sglang_mtpc import served
from sglang_mtpc.shape import complete_settings


class DrafterAlgorithm(CustomSpecAlgo):
    """A speculative algorithm whose drafts SGLang verifies like EAGLE's; one for each draft method.

    The properties follow from the configuration of the drafter that this process serves.  SGLang calls three methods
    that `CustomSpecAlgo` lacks: `need_topk`, `carries_draft_hidden_states` and `create_future_map`.
    """

    def is_eagle(self) -> bool:
        """Return True: the target's CUDA graphs verify as for EAGLE and keep hidden states for the next draft."""
        return True

    def has_draft_kv(self) -> bool:
        """Return whether draft steps need slots of the KV cache, as those of an autoregressive part do."""
        return served.has_autoregressive_part()

    def supports_grammar_overlap(self) -> bool:
        """Return True: `run_eagle_verify` waits for the grammar itself."""
        return True

    def need_topk(self) -> bool:
        """Return whether a request carries its first draft token between steps, as with an autoregressive part."""
        return served.has_autoregressive_part()

    def carries_draft_hidden_states(self) -> bool:
        """Return False: only disaggregated prefill and decode uses it, which `settings` rejects."""
        return False

    def create_future_map(self, *args: Any, **options: Any) -> Any:
        """Return SGLang's map, which relays hidden states, bonus tokens and first drafts between overlapping steps."""
        return SpeculativeAlgorithm.create_future_map(self, *args, **options)

    def handle_server_args(self, server_args: Any) -> None:
        """Fill in the settings that the user left open; `start_up` has checked the others."""
        complete_settings(server_args)
