"""What SGLang asks of a speculative algorithm, answered for MTPC and FastMTP."""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sglang_mtpc.settings import complete_settings


class MTPCAlgorithm(CustomSpecAlgo):
    """A one-shot drafter verified as EAGLE's drafts are.

    SGLang dispatches on these answers.  Three of them are asked of every algorithm, but missing in `CustomSpecAlgo`.
    """

    def is_eagle(self) -> bool:
        """Yes: the target's CUDA graphs then verify EAGLE's way and keep the hidden states for the next draft."""
        return True

    def has_draft_kv(self) -> bool:
        """No: drafting has no attention, so verification alone decides how much KV cache a step reserves."""
        return False

    def supports_grammar_overlap(self) -> bool:
        """Yes: `run_eagle_verify` waits for the grammar where it needs it."""
        return True

    def need_topk(self) -> bool:
        """No: between steps a request carries its hidden state and its pending token, and no first drafts."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        """No: this concerns prefill and decode on separate servers, which `settings` refuses."""
        return False

    def create_future_map(self, *args: Any, **options: Any) -> Any:
        """The map that relays hidden states and pending tokens between overlapping steps: SGLang's own."""
        return SpeculativeAlgorithm.create_future_map(self, *args, **options)

    def handle_server_args(self, server_args: Any) -> None:
        """Complete what the user left open; `start_up` has checked the rest."""
        complete_settings(server_args)


class FastMTPAlgorithm(MTPCAlgorithm):
    """A drafter that SGLang's own EAGLE worker runs, with keys and values of its own."""

    def has_draft_kv(self) -> bool:
        """Yes: each draft's keys and values need a slot."""
        return True

    def need_topk(self) -> bool:
        """Yes: between steps a request carries its first draft."""
        return True
