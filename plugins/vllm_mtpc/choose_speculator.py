"""Makes Model Runner V2 take our speculators for our drafters."""

from __future__ import annotations

import functools
import sys
from typing import Any

from vllm_mtpc import ARCHITECTURE, FASTMTP_ARCHITECTURE

RUNNER = "vllm.v1.worker.gpu.model_runner"


def install(spec_decode: Any) -> None:
    """Wrap ``init_speculator``, also under the name by which the runner may already have imported it."""
    original = spec_decode.init_speculator

    @functools.wraps(original)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        draft = vllm_config.speculative_config.draft_model_config
        architectures = () if draft is None else draft.architectures or ()
        if ARCHITECTURE in architectures:
            from vllm_mtpc.speculator_v2 import MTPCSpeculator

            return MTPCSpeculator(vllm_config, device)
        if FASTMTP_ARCHITECTURE in architectures:
            from vllm_mtpc.fastmtp_v2 import FastMTPSpeculator

            return FastMTPSpeculator(vllm_config, device, req_states)
        return original(vllm_config, device, req_states)

    spec_decode.init_speculator = init_speculator
    runner: Any = sys.modules.get(RUNNER)
    if hasattr(runner, "init_speculator"):
        runner.init_speculator = init_speculator
