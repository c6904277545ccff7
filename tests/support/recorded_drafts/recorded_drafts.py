"""A plugin for tests: writes down what a FastMTP drafter drafts in vLLM, a line of JSON for each step."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from mtpc.after_import import after_import

VARIABLE = "RECORDED_DRAFTS"  # names the file


@functools.cache
def register() -> None:
    """Entry point of ``vllm.general_plugins``; a second call does nothing."""
    after_import("vllm_mtpc.fastmtp_v1", lambda module: record(module.FastMTPProposer))
    after_import("vllm_mtpc.fastmtp_v2", lambda module: record(module.FastMTPSpeculator))


def record(drafter: Any) -> None:
    """Drafted tokens [B][K], as they come, but for those of no request."""
    propose = drafter.propose

    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        drafts = propose(self, *args, **named)
        if not named.get("dummy_run"):
            with Path(os.environ[VARIABLE]).open("a") as file:
                file.write(json.dumps(drafts.tolist()) + "\n")
        return drafts

    drafter.propose = recorded
