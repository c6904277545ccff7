"""The benchmark of tokens/s: its engine arguments, its tables, and a run that continues an earlier one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import speed
from benchmarks.speed_contestants import contestants
from benchmarks.speed_tables import ALL, Found, make_tables
from mtpc.errors import MTPCError
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.sglang_engine import SGLANG, sglang_command
from mtpc.lab.servers.vllm_engine import VLLM, vllm_counters
from mtpc.lab.text.prompts import SHIPPED
from tests.mtpc.lab.bench.figures import measurement, point
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.support.random_models import make_copying

FAKE = Path(__file__).parents[1] / "mtpc" / "lab" / "servers" / "fake_server.py"
WEIGHTS = Path(__file__).parents[2] / "weights"


def given(*more: str) -> list[str]:
    names = ["--target", str(WEIGHTS / "byte-target"), "--drafter", f"own={WEIGHTS / 'byte-mtpc-hmm-n8'}"]
    return [*names, "--ngram", "1-7:11", "--drafts", "own=5", "--drafter-arg=own=--x=1", *more]


def test_chains_and_trees_of_every_drafter() -> None:
    arguments = speed.read_arguments(
        given("--trees", "8,15", "--borrow", "4", "--max-children", "3", "--temperatures", "0,1")
    )
    found = {one.name: one for one in contestants(arguments, SGLANG, longest_prompt=100)}
    trees = ["own, tree of 8", "own, tree of 8 + 4 borrowed", "own, tree of 15", "own, tree of 15 + 4 borrowed"]
    assert list(found) == ["no drafter", "n-gram 1-7:11", "own", *trees]
    assert found["n-gram 1-7:11"].settings.ngram == Ngram(1, 7, 11)
    assert found["own"].settings.extra == ("--x=1",)
    command = sglang_command(found[trees[1]].settings, 1)
    assert command[-6:] == [
        *("--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "13"),
        *("--speculative-token-map", "?borrow=4"),
    ]
    assert command[command.index("--speculative-num-steps") + 1] == "5"
    assert {one.settings.max_length for one in found.values()} == {100 + 128 + 1 + 19}
    with pytest.raises(MTPCError, match="vLLM verifies chains only"):
        list(contestants(arguments, VLLM, 100))
    for settings in (["=FILE?language=german"], ["", "FILE?language=german"]):
        own = [f"--drafter-arg=own={part}" for part in (f"--speculative-token-map{settings[0]}", *settings[1:])]
        options = given("--trees", "8", "--borrow", "4", "--max-children", "3", *own)
        *_, tree, borrowing = contestants(speed.read_arguments(options), SGLANG, 100)
        assert tree.settings.extra[-2:] == ("--speculative-token-map", "FILE?language=german")
        assert borrowing.settings.extra[-2:] == ("--speculative-token-map", "FILE?language=german&borrow=4")
        assert borrowing.settings.extra.count("--speculative-token-map") == 1
    arguments.max_children = None
    with pytest.raises(MTPCError, match="--trees needs --max-children"):
        list(contestants(arguments, SGLANG, 100))


def test_kept_results_are_of_all_arguments() -> None:
    """Those of all servers, and those of one drafter."""
    made = []
    for more in ([], ["--server-arg=--dtype=bfloat16"], ["--drafter-arg=own=--y"]):
        arguments = speed.read_arguments(given("--prompts", str(SHIPPED), *more))
        benchmark = speed.Benchmark(arguments, VLLM, Console())
        own = next(one for one in benchmark.others if one.name == "own")
        made.append(benchmark._file(own, 0.0, next(iter(benchmark.asked)))[1])
    assert made[0] != made[1] and made[0] != made[2] and made[1] != made[2]


def test_names_that_nothing_is_measured_by() -> None:
    for more in (["--drafts", "onw=5"], ["--drafter-arg=onw=--x"]):
        with pytest.raises(MTPCError, match=f"{more[0].partition('=')[0]} names 'onw', which is not measured"):
            list(contestants(speed.read_arguments(given(*more)), VLLM, 100))
    with pytest.raises(MTPCError, match="nothing is to be measured"):
        list(contestants(speed.read_arguments(given()[:2]), VLLM, 100))


def test_a_drafter_of_the_engines_own_is_set_up_by_its_arguments(tmp_path: Path) -> None:
    own = f'--speculative-config={{"method": "eagle", "model": "{tmp_path}", "num_speculative_tokens": 30}}'
    more = ["--native", f"layer={tmp_path}", f"--drafter-arg=layer={own}"]
    with pytest.raises(MTPCError, match="--drafts layer=K"):
        list(contestants(speed.read_arguments(given(*more)), VLLM, 100))
    arguments = speed.read_arguments(given(*more, "--drafts", "layer=30"))
    with pytest.raises(MTPCError, match="it has no config"):
        list(contestants(arguments, VLLM, 100))
    (tmp_path / "config.json").write_text("{}")
    found = {one.name: one for one in contestants(arguments, VLLM, 100)}
    assert list(found) == ["no drafter", "n-gram 1-7:11", "layer", "own"]
    settings = found["layer"].settings
    assert settings.drafter is None and settings.extra == (own,) and settings.max_length == 100 + 128 + 1 + 30
    assert VLLM.as_released(settings, [0.0]).plugin, "the plugin may mix prompt lookup into its drafts"
    (tmp_path / "config.json").write_text("[]")
    again = {one.name: one for one in contestants(arguments, VLLM, 100)}
    assert again["layer"].made_of != found["layer"].made_of
    assert again["own"].made_of == found["own"].made_of


def test_a_row_for_each_way_to_draft_and_shares_next_to_the_papers() -> None:
    measured = point()
    drafted = tuple(
        replace(one, part_seconds={"draft step 1": 0.0005, "parallel": 0.0002}) for one in measured.with_drafter
    )
    slow = measurement(75, 0.5, texts=("a", "b")), measurement(75, 0.5, texts=("a", "d"))
    found: Found = {
        ("one", 0.0, "chat"): replace(measured, with_drafter=drafted).to_json(),
        ("one", 0.0, "code"): replace(measured, with_drafter=drafted).to_json(),
        ("other", 0.0, "chat"): replace(measured, with_drafter=slow).to_json(),
    }
    speeds, parts = make_tables(found, ["chat", "code", ALL])
    assert speeds.columns == ["drafter", "chat", "code", "all"]
    assert speeds.rows[0] == ["no drafter", "100.0", "100.0", "100.0"]
    assert speeds.rows[1] == ["one", *["266.7 (2.67x, 1.42)"] * 3]
    assert speeds.rows[2] == ["other", "150.0 (1.50x, 1.00)", "-", "150.0 (1.50x, 1.00)"]
    assert parts.columns == ["drafter", "draft step 1", "draft step 2", "parallel", "tree", "other", "verification"]
    assert parts.rows == [
        ["one", "1.5%", "-", "0.6%", "-", "0.9%", "97.0%"],
        ["Gumiho paper, table 3", "4.4%", "5.5%", "3.2%", "5.4%", "9.7%", "71.9%"],
    ]


@pytest.mark.thorough
def test_a_run_goes_on_where_another_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def command(settings: ServerSettings, port: int) -> list[str]:
        started.append("none" if settings.drafter is None else settings.drafter.name)
        return [sys.executable, str(FAKE), str(port)]

    monkeypatch.setattr(speed, "find_engine", lambda *_: Engine("fake", "Fake", command, vllm_counters))
    monkeypatch.setattr(speed, "must_be_installed", lambda _: None)
    target = make_chat_folder(tmp_path / "target")
    for name in ("one", "other"):
        make_copying(tmp_path / name, target)
    (tmp_path / "asked.jsonl").write_text('{"kind": "chat", "user": "Hello"}\n{"kind": "code", "user": "x = 1"}\n')
    arguments = ["--target", str(target), "--prompts", str(tmp_path / "asked.jsonl"), "--max-tokens", "8"]
    arguments += ["--out", str(tmp_path / "out"), "--drafter", f"one={tmp_path / 'one'}"]
    assert speed.main(arguments) == 0
    assert started == ["none", "one"]
    assert speed.main([*arguments, "--drafter", f"other={tmp_path / 'other'}"]) == 0
    assert started[2:] == ["none", "other"]
    assert speed.main([*arguments, "--drafter", f"other={tmp_path / 'other'}"]) == 0
    assert started[4:] == []
    found = json.loads((tmp_path / "out" / "results.json").read_text())["found"]
    assert [(one["name"], one["kind"]) for one in found] == [
        *(("one", "chat"), ("one", "code")),
        *(("other", "chat"), ("other", "code")),
    ]
    assert all(one["identical_greedy_share"] == 1 for one in found)
    page = (tmp_path / "out" / "results.md").read_text()
    assert "| drafter | chat | code | all |" in page and "| other | " in page
    assert (tmp_path / "out" / "speed.png").stat().st_size > 1000
