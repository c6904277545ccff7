"""The cards where there is no GPU: what their rows compute, how they run and report, and all of them in miniature."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import warnings
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import speed
from mtpc.lab.evaluation import reference as session
from tests.gpu import __main__ as runner
from tests.gpu import cost, graphs, row, warm
from tests.gpu.cards import CARDS, ROWS, Row, card_of
from tests.gpu.row import Found, Held
from tests.gpu.running import NotRunError, Run
from tests.gpu.waiting import Waits
from tests.gpu.whole import Batch, examples

ROOT = Path(__file__).parents[2]
MISSING = "sglang" if find_spec("sglang") is None else "vllm"  # its import takes no time


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(device_name="cpu", folder=tmp_path, out=tmp_path)


def test_kernels_beyond_the_budget(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "BUDGET", 20)
    with pytest.raises(AssertionError, match="more than 20"):
        cost.costs(run)


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


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_there(name: str) -> None:
    asked = ROWS[name]
    module, function = asked.function.split(":")
    if module.startswith("tests.gpu.on_") and find_spec(asked.engine) is None:
        pytest.skip(f"{asked.engine} is not installed here")
    found = getattr(import_module(module), function)
    assert callable(found(*asked.arguments) if asked.arguments else found)


def test_cards_have_time_for_their_first_rows() -> None:
    assert [card.name for card in CARDS] == ["load", "core", "vllm", "speed", "sglang", "data", "training", "size"]
    assert [card.seconds for card in CARDS] == [240] * 5 + [540] * 3
    assert len(ROWS) == sum(len(card.rows) for card in CARDS)
    for number, card in enumerate(CARDS, 1):
        assert card_of(str(number)) is card_of(card.name) is card
        assert next(iter(card.rows.values())).expected < card.seconds
        assert any(row.on_cpu for row in card.rows.values())


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--list"]) == 0
    output = capsys.readouterr().out
    for card in CARDS:
        assert card.question in output
    for name, asked in ROWS.items():
        assert any(line.split()[:2] == [name, f"{asked.expected:.0f}"] for line in output.splitlines())


def broken(run: Run) -> str:
    raise RuntimeError("the device is gone\nand more")


def quoting(run: Run) -> str:
    raise AssertionError("Traceback:\n  File\nOSError: no room\nbye")


def missing(run: Run) -> str:
    raise NotRunError("there is no network")


def test_a_row_that_fails_is_a_line_of_the_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (broken, missing, quoting):
        monkeypatch.setattr(graphs, function.__name__, function, raising=False)
        monkeypatch.setitem(ROWS, function.__name__, Row("vllm", 1.0, f"tests.gpu.graphs:{function.__name__}"))
    monkeypatch.setitem(ROWS, "gone", Row("sglang", 1.0, "tests.gpu.no_such_module:x"))
    assert row.tried("broken", run) == Found(Held.NO, "RuntimeError: the device is gone")
    assert row.tried("quoting", run) == Found(Held.NO, "AssertionError: OSError: no room")
    assert row.tried("missing", run) == Found(Held.UNTRIED, "there is no network")
    assert "no_such_module is not installed" in row.tried("gone", run).what
    monkeypatch.setattr(row, "find_spec", lambda engine: None)
    assert row.tried("vllm/mtpc", run) == Found(Held.UNTRIED, "vllm is not installed here")


FOUND = """{"held": "held", "what": "all", "origin": {"commit": "c"}}"""


@pytest.mark.parametrize(
    ("script", "held", "found", "figures"),
    [
        ("echo 'RuntimeError: out of memory.' >log; echo 3", Held.NO, "ended with code 3: RuntimeError: out of memory",
         []),
        ("echo 'OSError: no libcuda' >&2; exit 4", Held.NO, "ended with code 4: OSError: no libcuda", []),
        ("echo begins >log; echo '[{\"x\": 1}]' >figures.json; sleep 60", Held.STOPPED, "after 3 s: begins",
         [{"x": 1}]),
        (f"echo '{FOUND}' >found.json; sleep 60", Held.YES, "all", []),
    ],
    ids=["broken off", "the engine breaks off", "too long", "held, then hangs"],
)  # fmt: skip
def test_what_becomes_of_a_row(
    run: Run, script: str, held: Held, found: str, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had measured when it was stopped is kept, and the next row runs."""
    monkeypatch.setattr(warm, "PATIENCE", 1.0)
    run = run.model_copy(update={"folder": run.folder / "row", "seconds": 3.0})
    rows = f'while read -r name file; do cd "$(dirname "$file")"; {script}; done'
    with closing(warm.Warm("vllm", ["sh", "-c", rows], run.folder.parent / "engines")) as process:
        for _ in range(2):
            result = runner.tried("name", process, run)
            assert (result["held"], result["found"], result["figures"]) == (held, found, figures)


@pytest.mark.thorough
def test_rows_are_forked_from_one_process(run: Run) -> None:
    """A row of an engine that is not there, twice, and one that does not exist, whose error is in its log."""
    with closing(warm.Warm(MISSING, [sys.executable], run.folder / "engines")) as process:
        for name, held, found in (
            (f"{MISSING}/doctor", Held.UNTRIED, f"{MISSING} is not installed here"),
            (f"{MISSING}/doctor", Held.UNTRIED, f"{MISSING} is not installed here"),
            ("no-such-row", Held.NO, "KeyError: 'no-such-row'"),
        ):
            result = runner.tried(name, process, run.model_copy(update={"folder": run.folder / "row"}))
            assert (result["held"], result["found"]) == (held, found)


# As torch has it: where the device has been used, and in no process that is forked from there.
USED = """import os, sys, torch
here = os.getpid()
torch.cuda.is_initialized = lambda: os.getpid() == here
from tests.gpu import row
row.run_row = lambda *given: sys.exit("forked")
del sys.argv[1:3]
row.main()"""


@pytest.mark.thorough
def test_where_the_import_has_used_the_device_a_row_is_run_by_a_new_python(run: Run) -> None:
    """A forked process could not use it; SGLang's import does."""
    with closing(warm.Warm(MISSING, [sys.executable, "-c", USED], run.folder / "engines")) as process:
        result = runner.tried("no-such-row", process, run.model_copy(update={"folder": run.folder / "row"}))
    assert result["found"] == "KeyError: 'no-such-row'"


def speeds(setup: str, rate: float, **more: Any) -> dict[str, Any]:
    point = {"engine": "vllm", "pair": "chat", "temperature": 0.0, "concurrency": 1, "prompts": "p.jsonl"}
    found = {"tokens_per_second": rate, "acceptance_length": 2.5, "drafting_share": 0.1}
    return point | found | {"setup": setup} | more


SCRIPT = """sh -c 'while read -r name file; do
    echo "$name" >>log
    cd "$(dirname "$file")"
    case "$name" in *speed*none) echo '"'"'%s'"'"' >figures.json;; *speed*) echo '"'"'%s'"'"' >figures.json;; esac
    case "$name" in
        *drawn) : >"$(dirname "$file")/log"; echo 1;;
        *) echo "{\\"held\\": \\"held\\", \\"what\\": \\"$name\\"}" >found.json; echo 0;;
    esac
    cd - >/dev/null
done'"""


def test_results_are_whole_after_every_row_and_are_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "ROOT", tmp_path)
    figures = [json.dumps([speeds(*each)]) for each in (("none", 100.0), ("drafter", 250.0))]
    start = SCRIPT % tuple(figures)
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--vllm", start, "--device", "cpu"]
    some = ["--rows", "graphs", "drawn", "vllm/speed-chat-none", "vllm/speed-chat-drafter"]
    assert runner.main(["core", "speed", *some, *folders]) == 1
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {name: result["held"] for name, result in results.items()} == {
        "graphs": "held", "drawn": "FAILED", "vllm/speed-chat-none": "held", "vllm/speed-chat-drafter": "held",
    }  # fmt: skip
    assert results["vllm/speed-chat-none"]["figures"][0]["tokens_per_second"] == 100.0
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| core | graphs | held | graphs |" in table
    assert "| vllm | chat | 0 | 1 | 100 | 250 (2.50x, 2.50, 10%) |" in table
    assert "=== drawn: ended with code 1" in (tmp_path / "out" / "log.txt").read_text()
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    assert "2.50x" in capsys.readouterr().out
    # What has a result is not run again; --again runs it; a card without time runs nothing.
    assert runner.main(["core", *some, *folders]) == 1
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    assert runner.main(["core", "--again", "--rows", "graphs", *folders]) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 5
    assert runner.main(["core", "--again", "--seconds", "1", *folders]) == 1
    assert "no time left" in capsys.readouterr().out
    assert len((tmp_path / "log").read_text().splitlines()) == 5


def test_two_runs_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One would delete what the other's rows read."""
    options = ["core", "--device", "cpu", "--out", str(tmp_path / "out"), "--work", str(tmp_path), "--rows", "none"]
    assert runner.main(options) == 0
    with (tmp_path / "engines" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert runner.main(options) == 2
    assert f"another run uses {tmp_path};" in capsys.readouterr().err


def test_cards_and_figures_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["speeds", "--device", "cpu"]) == 2
    assert "the cards are load, core" in capsys.readouterr().err
    lone = speed.table({"row": [speeds("drafter", 50.0), speeds("n-gram", 60.0, concurrency=8)]})
    assert lone.rows == [
        ["vllm", "chat", "0", "1", "50 (2.50, 10%)", "-"], ["vllm", "chat", "0", "8", "-", "60 (2.50, 10%)"],
    ]  # fmt: skip


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


@torch.inference_mode()
def test_every_draft_of_the_core_card() -> None:
    """Once, in every way that it is captured on a GPU."""
    ways = 0
    for _, example in examples(torch.device("cpu")):
        for draft in example.ways().values():
            assert len(draft(Batch.random(3, 0, *example.sizes, torch.device("cpu"))).tokens) == 3
            ways += 1
    assert ways > 50


@pytest.mark.engine
@pytest.mark.thorough
def test_every_card_in_miniature(tmp_path: Path) -> None:
    """The rows of this environment; SGLang's are in `tests.sglang_mtpc.test_gpu_rows`."""
    asked = {name: asked for name, asked in ROWS.items() if asked.on_cpu and asked.engine == "vllm"}
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    runner.main(["--device", "cpu", "--rows", *asked, *folders])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert not {name: result["found"] for name, result in results.items() if result["held"] != Held.YES}
    assert set(results) == set(asked)
    assert {name for name, result in results.items() if result["figures"]} >= {
        "vllm/speed-bytes-drafter", "vllm/answers", "train/fastmtp", "vllm/llama-3.1-8b-gumiho",
    }  # fmt: skip
