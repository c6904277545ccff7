"""A whole benchmark, as far as it goes without an engine."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from mtpc.bench.command import Request, run_benchmark
from mtpc.bench.run import Plan
from mtpc.errors import MTPCError
from mtpc.servers import engines


def test_nothing_is_started_without_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    (tmp_path / "prompts.jsonl").write_text('{"text": "x"}\n')
    weights = Path(__file__).parents[3] / "weights"
    request = Request(
        engine="sglang",
        offline=False,
        target=weights / "byte-target",
        drafter=weights / "byte-mtpc-hmm-n8",
        num_drafts=None,
        url=None,
        baseline_url=None,
        server_arguments=(),
        drafter_arguments=(),
        draft_times=True,
        prompts=tmp_path / "prompts.jsonl",
        out=tmp_path / "out",
    )
    console = Console(file=StringIO())
    with pytest.raises(MTPCError, match="SGLang is not installed"):
        run_benchmark(request, Plan((1,), (0.0,), 4), console)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    assert not (tmp_path / "out").exists()
