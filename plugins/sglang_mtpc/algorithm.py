"""What SGLang asks of a speculative algorithm, answered from the drafter's configuration."""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sglang_mtpc import served
from sglang_mtpc.shape import complete_settings


class DrafterAlgorithm(CustomSpecAlgo):
    """A drafter verified as EAGLE's drafts are; one for each draft method of the registry, by its name in SGLang.

    SGLang dispatches on these answers.  Three of them are asked of every algorithm, but missing in `CustomSpecAlgo`.
    """

    def is_eagle(self) -> bool:
        """Yes: the target's CUDA graphs then verify EAGLE's way and keep the hidden states for the next draft."""
        return True

    def has_draft_kv(self) -> bool:
        """With an autoregressive part, whose drafts need slots; else verification alone decides how much a step reserves."""
        autoregressive = served.config().autoregressive
        return autoregressive is not None and autoregressive.cache == "pages"

    def supports_grammar_overlap(self) -> bool:
        """Yes: `run_eagle_verify` waits for the grammar where it needs it."""
        return True

    def need_topk(self) -> bool:
        """With an autoregressive part: between steps a request then carries its first draft."""
        return served.has_autoregressive_part()

    def carries_draft_hidden_states(self) -> bool:
        """No: this concerns prefill and decode on separate servers, which `settings` refuses."""
        return False

    def create_future_map(self, *args: Any, **options: Any) -> Any:
        """The map that relays hidden states, pending tokens and first drafts between overlapping steps: SGLang's."""
        return SpeculativeAlgorithm.create_future_map(self, *args, **options)

    def handle_server_args(self, server_args: Any) -> None:
        """Complete what the user left open; `start_up` has checked the rest."""
        complete_settings(server_args)
