"""Operators and bytes of a draft and of its verification, against counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import draft_operators
from benchmarks.draft_operators import Case, cases, measured, table

CPU = torch.device("cpu")


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """The cases, with a small vocabulary for chat drafters that have no checkpoint."""
    monkeypatch.setattr(draft_operators, "CHAT_VOCABULARY", 300)
    monkeypatch.setattr(draft_operators, "VOCABULARY", 200)
    monkeypatch.setattr(draft_operators, "TIMES", 1)
    return {case.name: case for case in cases(Path("weights"), CPU)}


def test_counts_of_a_circuit_and_a_layer(by_name: dict[str, Case]) -> None:
    drafter = by_name["FF, rank 1, window 4"].drafter
    assert len(by_name) == 10
    one, many = (measured(by_name["FF, rank 1, window 4"], batch, CPU) for batch in (1, 32))
    assert one["draft_bytes_read"] == 2 * (sum(weight.numel() for weight in drafter.parameters()) + 200 * 576)
    assert one["draft_operators"] <= many["draft_operators"] <= one["draft_operators"] + 1
    assert 25 < many["draft_bytes_written"] / one["draft_bytes_written"] < 36
    stated, target = 3 * 300 * 4, 4 * 300 * 4  # bytes of the distributions that are read
    assert stated < one["verification_bytes_written"] < 10 * (stated + target)
    rows = [measured(by_name[f"byte-mtpc-hmm-n8{suffix}"], 1, CPU) for suffix in ("", ", prompt lookup")]
    assert rows[0]["draft_operators"] + 50 < rows[1]["draft_operators"]
    assert rows[0]["draft_bytes_read"] == rows[1]["draft_bytes_read"]
    assert [cells[0] for cells in table(rows).rows] == ["byte-mtpc-hmm-n8", "byte-mtpc-hmm-n8, prompt lookup"]
