"""The line that an engine logs of its drafter."""

from __future__ import annotations

from pathlib import Path

from mtpc.methods.mtpc import MTPC
from mtpc.serving.announcement import Shares, startup_line


def test_says_what_drafts_and_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1_230_000))
    line = startup_line(tmp_path, MTPC(), Shares(2, 0, 3), "drafting from all 9 tokens", "V1 runner")
    assert line == (
        f"{tmp_path} is an MTPC drafter and drafts up to 5 tokens; 2 by its autoregressive part, 3 by prompt lookup; "
        "drafting from all 9 tokens; weights 1.2 MB; V1 runner."
    )
    alone = startup_line(tmp_path, MTPC(), Shares(0, 4), "drafting from all 9 tokens")
    assert "drafts up to 4 tokens" in alone and "prompt lookup" not in alone
    text = startup_line(tmp_path, MTPC(), Shares(0, 0, text=3), "drafting from the request's text")
    assert "drafts up to 3 tokens; 3 by its text part; drafting from the request's text" in text
