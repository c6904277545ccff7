"""Engines by their names."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from mtpc.bench import command
from mtpc.bench.command import Request, drafts_of, must_be_installed, run_benchmark
from mtpc.bench.engines import ENGINES, find_engine
from mtpc.bench.run import Plan
from mtpc.errors import MTPCError
from mtpc.fastmtp.directory import save_layer
from tests.mtpc.fastmtp.models import make_layer, make_target


def test_both_engines_are_known() -> None:
    assert [find_engine(name).title for name in ("vllm", "sglang")] == ["vLLM", "SGLang"]
    assert find_engine("vllm", offline=True).title == "vLLM, offline"


def test_unknown_engine() -> None:
    with pytest.raises(MTPCError, match=r"'tgi'.*vllm, sglang"):
        find_engine("tgi")


def test_sglang_is_not_measured_offline() -> None:
    with pytest.raises(MTPCError, match=r"^SGLang .* runs behind its server only\.$"):
        find_engine("sglang", offline=True)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    with pytest.raises(MTPCError, match=f"is not installed here.*make_env.sh {name}"):
        must_be_installed(find_engine(name))


def test_a_window_limits_what_a_circuit_drafts() -> None:
    drafter = Path(__file__).parents[3] / "weights" / "byte-mtpc-hmm-n8"
    assert (drafts_of(drafter, None), drafts_of(drafter, 3)) == (7, 3)
    for number in (0, 8):
        with pytest.raises(MTPCError, match=f"--num-drafts is {number}, but the window of 8 tokens allows 1 to 7"):
            drafts_of(drafter, number)


def test_an_mtp_layer_drafts_as_often_as_wanted(tmp_path: Path) -> None:
    save_layer(tmp_path / "drafter", make_layer(make_target("llama"), 3), {})
    assert (drafts_of(tmp_path / "drafter", None), drafts_of(tmp_path / "drafter", 5)) == (3, 5)
    with pytest.raises(MTPCError, match="--num-drafts must be at least 1, not 0"):
        drafts_of(tmp_path / "drafter", 0)


def test_nothing_is_started_without_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
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
