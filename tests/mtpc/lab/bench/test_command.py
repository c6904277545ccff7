"""A whole benchmark, as far as it goes without an engine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.bench import command, report
from mtpc.lab.bench.command import run_benchmark, server_settings
from mtpc.lab.bench.settings import BenchOptions, BenchPlan
from mtpc.lab.cli.main import app
from mtpc.lab.servers import engine_registry
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.sglang_engine import SGLANG
from mtpc.lab.servers.vllm_engine import VLLM, vllm_counters

WEIGHTS = Path(__file__).parents[4] / "weights"
FAKE = Path(__file__).parents[1] / "servers" / "fake_server.py"


@pytest.fixture
def request_(tmp_path: Path) -> BenchOptions:
    """Return options of a short benchmark, with the defaults for all others."""
    (tmp_path / "prompts.jsonl").write_text('{"text": "x"}\n')
    return BenchOptions(
        target=WEIGHTS / "byte-target",
        drafter=WEIGHTS / "byte-mtpc-hmm-n8",
        server_arg=["--both"],
        drafter_arg=["--one"],
        plan=BenchPlan((1,), (0.0,), max_tokens=4, rounds=1, requests=2),
        prompts=tmp_path / "prompts.jsonl",
        out=tmp_path / "out",
    )


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=200)


def printed(console: Console) -> str:
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_nothing_is_started_without_the_engine(
    request_: BenchOptions, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_registry, "find_spec", lambda _: None)
    with pytest.raises(MTPCError, match="SGLang is not installed"):
        run_benchmark(replace(request_, engine="sglang"), console)
    assert printed(console) == ""
    assert not request_.out.exists()


def test_running_servers_take_the_chat_template_of_a_target(request_: BenchOptions) -> None:
    request_.prompts.write_text('{"user": "hi"}\n')
    own = {"drafter": None, "server_arg": None, "drafter_arg": None}
    running = replace(request_, **own, url="http://127.0.0.1:1", baseline_url="http://127.0.0.1:2")
    with pytest.raises(MTPCError, match="chat template"):
        run_benchmark(replace(running, target=None), Console(file=StringIO()))
    with pytest.raises(MTPCError, match="byte-target has no chat template"):
        run_benchmark(running, Console(file=StringIO()))


def test_servers_differ_in_what_drafts_alone(request_: BenchOptions) -> None:
    plain, drafted, own = server_settings(request_, VLLM, 100, Ngram(2, 4, 9)).values()
    assert plain.max_length == 100 + 4 + 9  # the longest draft of any
    assert drafted == replace(plain, drafter=request_.drafter, num_drafts=7, extra=("--both", "--one"), plugin=True)
    assert own == replace(plain, ngram=Ngram(2, 4, 9))
    assert list(server_settings(request_, VLLM, 100, None)) == ["no drafter", "drafter"]


@pytest.mark.parametrize("temperatures", [(0.0,), (0.0, 1.0)])
def test_the_baseline_is_the_engine_as_it_is_released(
    temperatures: tuple[float, ...], request_: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    planned = replace(request_, plan=replace(request_.plan, temperatures=temperatures))
    settings = server_settings(planned, VLLM, 100, Ngram(2, 4, 9))
    loaded = {name: one.plugin for name, one in settings.items()}
    assert loaded == {"no drafter": False, "drafter": True, "n-gram 2-4:9": max(temperatures) > 0}


@pytest.mark.parametrize(
    ("fixes", "lines"),
    [
        (None, ["Without this project's plugin (the released engine): no drafter, n-gram 2-4:5."]),
        (
            "It is broken.",
            [
                "Without this project's plugin (the released engine): no drafter.",
                "With the plugin: n-gram 2-4:5. It is broken.",
            ],
        ),
    ],
)
def test_servers_without_the_plugin_are_named_below_the_figures(
    fixes: str | None, lines: list[str], request_: BenchOptions, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlier = "One speedup is too large."
    fake(monkeypatch, ngram_plugin_reason=lambda temperatures: fixes)
    monkeypatch.setattr(report, "outlier_notes", lambda points: [outlier])  # the times of the fakes are arbitrary
    run_benchmark(request_, console)
    settings = json.loads((request_.out / "results.json").read_text())["settings"]
    lines = [*lines, outlier]
    assert settings["notes"] == lines
    assert settings["plugin"] == {"no drafter": False, "drafter": True, "n-gram 2-4:5": fixes is not None}
    for text in (printed(console), (request_.out / "results.md").read_text()):
        below = text.partition("Tokens/s")[2].partition("Each round")[0]
        assert all(line in below for line in lines)


def fake(monkeypatch: pytest.MonkeyPatch, **more: object) -> list[list[str]]:
    """An engine that completes without computing; what it was started with."""
    started: list[list[str]] = []

    def start(settings: object, port: int) -> list[str]:
        started.append([str(settings)])
        return [sys.executable, str(FAKE), str(port)]

    engine = Engine("fake", "Fake", start, vllm_counters, **more)  # type: ignore[arg-type]
    monkeypatch.setattr(command, "find_engine", lambda *_: engine)
    monkeypatch.setattr(command, "must_be_installed", lambda _: None)
    return started


@pytest.mark.parametrize(
    ("asked", "columns"),
    [
        ({}, ["n-gram 2-4:5"]),
        ({"ngram": "3-5:7"}, ["n-gram 3-5:7"]),
        ({"no_ngram": True}, []),
    ],
)
def test_the_engines_own_drafter_is_a_column(
    asked: dict[str, object],
    columns: list[str],
    request_: BenchOptions,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = fake(monkeypatch)
    run_benchmark(replace(request_, **asked), console)
    assert len(started) == 2 + len(columns)
    results = json.loads((request_.out / "results.json").read_text())
    (point,) = results["points"]
    assert list(point["others"]) == columns
    assert [server.split()[1] for server in results["settings"]["servers"]] == [str(FAKE)] * len(started)
    assert results["settings"]["target"] == str(request_.target)
    assert results["settings"]["drafter"] == str(request_.drafter)
    assert all(column in printed(console) for column in columns)


def test_a_drafter_that_cannot_be_measured_is_left_out_and_said_so(
    request_: BenchOptions, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = fake(monkeypatch, ngram_obstacle=lambda ngram, temperatures: f"it is {ngram} at {temperatures[0]}")
    run_benchmark(request_, console)
    assert len(started) == 2
    assert "Fake's own n-gram drafter cannot be measured: it is 2-4:5 at 0.0.\n" in printed(console)
    with pytest.raises(MTPCError, match=r"cannot be measured: it is 2-9:5 at 0.0.$"):
        run_benchmark(replace(request_, ngram="2-9:5"), console)
    assert len(started) == 2


def test_a_drafter_of_another_target_is_refused_before_a_server_starts(
    request_: BenchOptions, console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = fake(monkeypatch)
    for change, sentence in (
        ({"vocab_size": 999}, "was trained for a target with vocab_size 258, but the target has 999."),
        ({"hidden_size": 8}, "was trained for a target with hidden_size 384, but the target has 8."),
        ({"text_config": {"vocab_size": 999, "hidden_size": 384}}, "but the target has 999."),
    ):
        config = json.loads((WEIGHTS / "byte-target" / "config.json").read_text()) | change
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(MTPCError) as caught:
            run_benchmark(replace(request_, target=tmp_path), console)
        assert str(caught.value).endswith(sentence)
    with pytest.raises(MTPCError, match="is an MTPC drafter, but a target was expected"):
        run_benchmark(replace(request_, target=request_.drafter), console)
    assert started == []
    assert printed(console) == ""
    assert not request_.out.exists()


def test_a_setting_of_what_is_not_measured() -> None:
    result = CliRunner().invoke(app, ["bench", "--ngram", "2-4:5", "--target", "t", "--drafter", "d", "--no-ngram"])
    assert result.exit_code == 2
    assert "--ngram 2-4:5 cannot be combined with --no-ngram" in result.output


def test_running_servers_have_their_own_settings() -> None:
    options = [
        f"--drafter={WEIGHTS / 'byte-mtpc-hmm-n8'}",
        "--offline",
        "--num-drafts=3",
        "--fixed-length",
        "--ngram=2-4:5",
        "--server-arg=--x",
    ]
    for option in [*options, "--drafter-arg=--x"]:
        result = CliRunner().invoke(app, ["bench", "--url", "http://x", "--baseline-url", "http://y", option])
        assert result.exit_code == 2
        assert f"{option.partition('=')[0]} cannot be combined with --url" in result.output


def test_fixed_length_is_said_in_the_words_of_the_engine(request_: BenchOptions) -> None:
    fixed = replace(request_, fixed_length=True)
    arguments = {
        VLLM: ("--both", "--additional-config", '{"mtpc":{"adaptive":false}}', "--one"),
        SGLANG: ("--both", "--speculative-token-map", "?adaptive=false", "--one"),
    }
    for engine, extra in arguments.items():
        plain, drafted = server_settings(fixed, engine, 100, None).values()
        assert (plain.extra, drafted.extra) == (("--both",), extra)
        again = replace(fixed, drafter_arg=[f"{extra[1]}={{}}"])
        with pytest.raises(MTPCError, match="would replace: write the setting into the latter"):
            server_settings(again, engine, 100, None)
