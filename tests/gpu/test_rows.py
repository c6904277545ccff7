"""The rows of `make test-gpu` where there is no GPU: what they compute, what they start, and what is told of them."""

from __future__ import annotations

import subprocess
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import typer
from transformers import LlamaConfig

from mtpc.cli.main import app
from mtpc.families import session
from tests.gpu import __main__ as runner
from tests.gpu import cost, exactness, graphs, row, rows, speed
from tests.gpu.row import Found, Held
from tests.gpu.rows import Row
from tests.gpu.running import NotRunError, Run
from tests.gpu.waiting import Waits
from tests.support.tiny_models import make_window

ROOT = Path(__file__).parents[2]
TINY = LlamaConfig(
    vocab_size=200, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(torch.device("cpu"), tmp_path, {"attention_backend": "TRITON_ATTN"}, ("--mem-fraction-static", "0.2"))


def test_whole_drafts_of_every_family_in_fake_graphs(run: Run) -> None:
    """Of one request and of three; between replays nothing is a number that is not a buffer or the draft."""
    assert graphs.replayed(run, (1, 3)).endswith("tokens: all as called")


def test_drawn_is_stated(run: Run) -> None:
    assert "TV " in exactness.drawn_is_stated(run, 300)


def test_costs(run: Run) -> None:
    found = {"HMM of 258": cost.of_window(make_window("hmm", 8, 32, 16, 258), 16, run)}
    found["FastMTP"] = cost.of_fastmtp(run, TINY, 20)
    told = cost.costs(run, found)
    assert "HMM of 258: " in told
    assert "FastMTP: " in told


def test_kernels_beyond_the_budget(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "BUDGET", 20)
    with pytest.raises(AssertionError, match="more than 20"):
        cost.costs(run, {"HMM of 258": cost.of_window(make_window("hmm", 8, 4, 16, 30), 16, run)})


def test_lines_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, once each."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    waits = Waits()

    def drafted() -> None:
        for file in (session.__file__, torch.__file__):
            warnings.warn_explicit("called a synchronizing CUDA operation", UserWarning, file, 7)

    waits.count()
    for _ in range(2):
        with waits:
            drafted()
    assert waits.found == [f"{session.__file__}:7"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_command_of_a_benchmark_parses(run: Run, engine: str) -> None:
    words = speed.command(engine, speed.PAIRS["bytes"], run)
    command = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    parsed = command.make_context("bench", words[1:]).params
    assert parsed["engine"] == engine
    assert list(parsed["batch_sizes"]) == [1, 2, 4, 8, 16, 32, 64]
    more = "--attention-backend=TRITON_ATTN" if engine == "vllm" else "--mem-fraction-static"
    assert more in parsed["server_arg"]


def test_what_a_benchmark_found() -> None:
    point = {"batch_size": 1, "temperature": 0, "tokens_per_second_without": 10.0, "tokens_per_second_with": 25.0}
    found = {"points": [point | {"speedup": 2.5}, point | {"speedup": 2.5, "batch_size": 2, "temperature": 1.0}]}
    assert speed.told(found) == "T = 0: 1: 10 > 25 (2.50 x); T = 1: 2: 10 > 25 (2.50 x)"


@pytest.mark.parametrize("name", rows.ROWS)
def test_every_row_is_there(name: str) -> None:
    asked = rows.ROWS[name]
    if asked.module.startswith("on_") and find_spec(asked.engine) is None:
        pytest.skip(f"{asked.engine} is not installed here")
    found = getattr(import_module(f"tests.gpu.{asked.module}"), asked.function)
    assert callable(found(*asked.arguments) if asked.arguments else found)
    if asked.module.startswith("on_") and asked.arguments:
        assert asked.arguments[0] in import_module(f"tests.gpu.{asked.module}").ROWS


def broken(run: Run) -> str:
    raise RuntimeError("the device is gone\nand more")


def quoting(run: Run) -> str:
    raise AssertionError("Traceback:\n  File\nOSError: no room\nbye")


def missing(run: Run) -> str:
    raise NotRunError("there is no network")


def test_a_row_that_fails_is_a_line_of_the_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (broken, missing, quoting):
        monkeypatch.setattr(graphs, function.__name__, function, raising=False)
        monkeypatch.setitem(rows.ROWS, function.__name__, Row("vllm", 1.0, "graphs", function.__name__))
    monkeypatch.setitem(rows.ROWS, "gone", Row("sglang", 1.0, "no_such_module", "x"))
    assert row.tried("broken", run) == Found(Held.NO, "RuntimeError: the device is gone")
    assert row.tried("quoting", run) == Found(Held.NO, "AssertionError: OSError: no room")
    assert row.tried("missing", run) == Found(Held.UNTRIED, "there is no network")
    assert row.tried("gone", run).held is Held.UNTRIED


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'RuntimeError: out of memory.'; exit 3", (Held.NO, "ended with code 3: RuntimeError: out of memory")),
        ("echo begins; sleep 60", (Held.NO, "took longer than 0 s: begins")),
        ("""echo '["held", "all"]' >$3/found.json""", (Held.YES, "all")),
    ],
    ids=["broken off", "too long", "held"],
)
def test_a_row_in_a_process_of_its_own(tmp_path: Path, script: str, found: Found) -> None:
    assert runner.tried("name", ["sh", "-c", script], tmp_path / "row", "cuda", 0.5) == found


def test_one_table_after_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = """sh -c 'case "$2" in *eager) exit 1;; esac; echo "[\\"held\\", \\"$2\\"]" >"$3"/found.json'"""
    asked = ["--rows", "vllm/graphs*", "drawn", "--device", "cpu", "--out", str(tmp_path), "--vllm", start]
    assert runner.main(asked) == 1
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert any(line.startswith("| drawn | held | drawn |") for line in lines)
    assert any(line.startswith("| vllm/graphs-and-eager | FAILED | ended with code 1") for line in lines)
    assert "vllm/graphs-and-eager" in capsys.readouterr().out


def test_without_a_gpu_a_sentence_and_a_good_end(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert runner.main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_make_says_so_too(tmp_path: Path) -> None:
    """Before any environment is made."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 9\n")
    smi.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "test-gpu"],
        cwd=ROOT, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("test-gpu: no NVIDIA GPU answers here")
    assert done.stdout.count("\n") == 1
