"""What a server logs of its drafter when it starts."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mtpc.draft_model.drafting import TextDrafting
from sglang_mtpc import served
from sglang_mtpc.shape import DraftShape


def test_the_log_says_how_drafts_are_made(
    drafter: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(served, "folder", lambda: str(drafter))
    monkeypatch.setattr(served, "get_schedule", lambda: SimpleNamespace(max_running_requests=0))
    for rank, copies, adapts, by_sglang, children, expected in (
        (0, True, True, False, 1, ("prompt lookup", "; adaptive draft length")),
        (0, False, False, False, 2, ("trees of 7 nodes", "fixed draft length")),
        (0, False, False, True, 1, ("SGLang's adaptive draft length",)),
        (1, True, True, False, 1, ()),
    ):
        caplog.clear()
        spec = SimpleNamespace(speculative_adaptive=by_sglang)
        monkeypatch.setattr(served, "get_spec", lambda spec=spec: spec)
        monkeypatch.setattr(served, "get_parallel", lambda rank=rank: SimpleNamespace(tp_rank=rank))
        monkeypatch.setattr(served, "copies", lambda copies=copies: copies)
        monkeypatch.setattr(served, "adapts", lambda adapts=adapts: adapts)
        monkeypatch.setattr(served, "shape", lambda children=children: DraftShape(7, children, 7))
        monkeypatch.setattr(served, "drafter_shape", lambda children=children: DraftShape(7, children, 7))
        served.announce(None, 0)
        assert len(caplog.messages) == bool(expected)
        for piece in (
            "prompt lookup",
            "; adaptive draft length",
            "SGLang's adaptive draft length",
            "trees of 7 nodes",
            "fixed draft length",
        ):
            assert (piece in caplog.text) == (piece in expected)


def test_the_log_names_the_memory_of_a_text_part(
    echo: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(served, "folder", lambda: str(echo))
    monkeypatch.setattr(served, "get_schedule", lambda: SimpleNamespace(max_running_requests=8))
    spec = SimpleNamespace(speculative_token_map=None, speculative_adaptive=False)
    monkeypatch.setattr(served, "get_spec", lambda: spec)
    monkeypatch.setattr(served, "shape", lambda: DraftShape(3, 1, 3))
    monkeypatch.setattr(served, "get_serving", lambda: SimpleNamespace(tokenizer_path="tokenizer"))
    for rank, loaded in ((0, True), (1, False)):
        monkeypatch.setattr(served, "get_parallel", lambda rank=rank: SimpleNamespace(tp_rank=rank))
        part = served.load_text_part(torch.device("cpu"))
        assert (part is not None) == loaded
        if part is not None:
            monkeypatch.setattr(part, "memory", lambda: 12_340_000)
        served.announce(None, 0, None if part is None else TextDrafting(part, None, ragged=False))
    (line,) = caplog.messages
    for piece in (
        "drafts up to 3 tokens; 3 by its text part; drafting from the request's text; ",
        "fixed draft length; the text part takes 12.3 MB",
        "for 8 requests",
    ):
        assert piece in line


def test_lengths_adapt_on_cpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without CUDA graphs: FlashAttention 3 verifies a fixed number of tokens."""
    for device, synchronous, by_sglang, token_map, expected in (
        ("cpu", True, False, None, True),
        ("cpu", False, False, None, False),
        ("cpu", True, True, None, False),
        ("cpu", True, False, "?adaptive=false", False),
        ("cuda", True, False, None, False),
    ):
        spec = SimpleNamespace(speculative_token_map=token_map, speculative_adaptive=by_sglang)
        monkeypatch.setattr(served, "get_spec", lambda spec=spec: spec)
        monkeypatch.setattr(served, "get_device", lambda device=device: SimpleNamespace(device=device))
        schedule = SimpleNamespace(disable_overlap_schedule=synchronous)
        monkeypatch.setattr(served, "get_schedule", lambda schedule=schedule: schedule)
        assert served.adapts() == expected
