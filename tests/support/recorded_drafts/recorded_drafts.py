"""A plugin for tests: writes down what a FastMTP drafter drafts, a line of JSON for each step."""

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
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; a second call does nothing."""
    after_import("vllm_mtpc.fastmtp_v1", lambda module: record_vllm(module.FastMTPProposer))
    after_import("vllm_mtpc.fastmtp_v2", lambda module: record_vllm(module.FastMTPSpeculator))
    after_import("sglang_mtpc.fastmtp_worker", lambda module: record_sglang(module.FastMTPDraftWorker))


def write(drafts: Any) -> None:
    """One line."""
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps(drafts) + "\n")


def record_vllm(drafter: Any) -> None:
    """Drafted tokens [B][K], as they come, but for those of no request."""
    propose = drafter.propose

    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        drafts = propose(self, *args, **named)
        if not named.get("dummy_run"):
            write(drafts.tolist())
        return drafts

    drafter.propose = recorded


def record_sglang(worker: Any) -> None:
    """Drafted tokens [K] by the ids of requests, as they come."""
    draft = worker.draft

    def recorded(self: Any, batch: Any, *args: Any, **named: Any) -> Any:
        ids = [request.rid for request in batch.reqs]
        verify_input = draft(self, batch, *args, **named)
        drafts = verify_input.draft_token.view(len(ids), -1)[:, 1:].tolist()
        write(dict(zip(ids, drafts, strict=True)))
        return verify_input

    worker.draft = recorded
