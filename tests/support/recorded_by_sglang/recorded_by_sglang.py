"""A plugin for tests: writes down what a FastMTP drafter drafts in SGLang, a line of JSON for each step."""

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
    """Entry point of ``sglang.srt.plugins``; a second call does nothing."""
    after_import("sglang_mtpc.fastmtp_worker", lambda module: record(module.FastMTPDraftWorker))


def record(worker: Any) -> None:
    """Drafted tokens [K] by the ids of requests, as they come."""
    draft = worker.draft

    def recorded(self: Any, batch: Any, *args: Any, **named: Any) -> Any:
        ids = [request.rid for request in batch.reqs]
        verify_input = draft(self, batch, *args, **named)
        drafts = verify_input.draft_token.view(len(ids), -1)[:, 1:].tolist()
        with Path(os.environ[VARIABLE]).open("a") as file:
            file.write(json.dumps(dict(zip(ids, drafts, strict=True))) + "\n")
        return verify_input

    worker.draft = recorded
