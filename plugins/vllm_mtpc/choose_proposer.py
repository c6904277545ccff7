"""Makes the V1 runner take our proposers for our drafters."""

from __future__ import annotations

from typing import Any

from vllm_mtpc import ARCHITECTURE, FASTMTP_ARCHITECTURE
from vllm_mtpc.fastmtp_v1 import FastMTPProposer
from vllm_mtpc.proposer_v1 import MTPCProposer

PROPOSERS = {ARCHITECTURE: MTPCProposer, FASTMTP_ARCHITECTURE: FastMTPProposer}


def install(eagle: Any) -> None:
    """Let ``EagleProposer(...)`` choose by the draft's architecture; all import sites keep their name."""

    def choose(cls: type, vllm_config: Any, *_: Any, **__: Any) -> Any:
        architectures = vllm_config.speculative_config.draft_model_config.architectures or ()
        ours = [PROPOSERS[name] for name in architectures if name in PROPOSERS]
        return object.__new__(ours[0] if ours and cls is eagle.EagleProposer else cls)

    eagle.EagleProposer.__new__ = staticmethod(choose)
