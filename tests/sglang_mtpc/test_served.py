"""What a server logs of its drafter when it starts."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_mtpc import served
from sglang_mtpc.shape import DraftShape


def test_the_log_says_how_drafts_are_made(
    drafter: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(served, "folder", lambda: str(drafter))
    monkeypatch.setattr(served, "get_schedule", lambda: SimpleNamespace(max_running_requests=0))
    for rank, copies, adapts, children, said in (
        (0, True, True, 1, ("prompt lookup", "adaptive draft length")),
        (0, False, False, 2, ("trees of 7 nodes", "fixed draft length")),
        (1, True, True, 1, ()),
    ):
        caplog.clear()
        monkeypatch.setattr(served, "get_parallel", lambda rank=rank: SimpleNamespace(tp_rank=rank))
        monkeypatch.setattr(served, "copies", lambda copies=copies: copies)
        monkeypatch.setattr(served, "adapts", lambda adapts=adapts: adapts)
        monkeypatch.setattr(served, "shape", lambda children=children: DraftShape(7, children, 7))
        monkeypatch.setattr(served, "drafter_shape", lambda children=children: DraftShape(7, children, 7))
        served.announce(None, 0)
        assert len(caplog.messages) == bool(said)
        for piece in ("prompt lookup", "adaptive draft length", "trees of 7 nodes", "fixed draft length"):
            assert (piece in caplog.text) == (piece in said)
