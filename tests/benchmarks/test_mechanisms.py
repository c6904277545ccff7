"""Every mechanism is measured at a small size, and the tables hold what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu import mechanisms

SMALL = ["--vocabulary", "40", "--batches", "1,3", "--times", "1"]


def test_mechanisms_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    assert mechanisms.main([*SMALL, "--only", "draw", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["name"], row["batch"]) for row in rows] == [
        (name, batch) for name in ("draw, one position", "draw, 7 positions") for batch in (1, 3)
    ]
    assert all(row["ms"] > 0 and row["peak_bytes"] > 0 and row["operators"] > 0 for row in rows)
    assert "| draw, 7 positions | 3 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in mechanisms.CASES if name.startswith("verification")])
def test_verification_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = pytest.importorskip("sglang_mtpc.verify", exc_type=ImportError)
    for touched in ("get_parallel", "get_exec", "is_cuda"):
        monkeypatch.setattr(verify, touched, None)  # put back after the test
    assert mechanisms.main([*SMALL, "--only", name]) == 0


@pytest.mark.parametrize("name", [name for name in mechanisms.CASES if name.startswith(("stated", "prompt"))])
def test_drafting_runs(name: str) -> None:
    if name.startswith("stated"):
        pytest.importorskip("vllm_mtpc.v2.speculator", exc_type=ImportError)
    assert mechanisms.main([*SMALL, "--only", name]) == 0


def test_a_name_that_matches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert mechanisms.main([*SMALL, "--only", "sorting"]) == 2
    assert "--only sorting matches no mechanism" in capsys.readouterr().err
