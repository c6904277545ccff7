"""The benchmark of a server's first requests: which questions it asks when, and its table over several starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import first_requests
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.vllm_engine import vllm_counters
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.support.random_models import make_copying

FAKE = Path(__file__).parents[1] / "mtpc" / "lab" / "servers" / "fake_server.py"


@pytest.mark.thorough
def test_every_start_begins_with_another_concurrency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def command(settings: ServerSettings, port: int) -> list[str]:
        started.append("none" if settings.drafter is None else settings.drafter.name)
        return [sys.executable, str(FAKE), str(port)]

    monkeypatch.setattr(first_requests, "find_engine", lambda *_: Engine("fake", "Fake", command, vllm_counters))
    monkeypatch.setattr(first_requests, "must_be_installed", lambda _: None)
    target = make_chat_folder(tmp_path / "target")
    make_copying(tmp_path / "one", target)
    (tmp_path / "asked.jsonl").write_text("".join(f'{{"user": "{number}"}}\n' for number in range(40)))
    arguments = ["--target", str(target), "--prompts", str(tmp_path / "asked.jsonl"), "--max-tokens", "8"]
    arguments += ["--questions", "20", "--concurrency", "1,4", "--starts", "2", "--out", str(tmp_path / "out")]
    assert first_requests.main([*arguments, "--drafter", f"one={tmp_path / 'one'}"]) == 0
    assert started == ["none", "one"] * 2
    points = json.loads((tmp_path / "out" / "results.json").read_text())["points"]
    assert [(point["start"], point["concurrency"], point["name"]) for point in points] == [
        (start, concurrency, name)
        for start, concurrency in ((0, 1), (0, 4), (1, 4), (1, 1))
        for name in ("no drafter", "one")
    ]
    assert [[turn["requests"] for turn in point["turns"]] for point in points[::2]] == [[10, 10], [20], [20], [10, 10]]
    page = (tmp_path / "out" / "results.md").read_text()
    assert "| drafter | concurrency 1 | concurrency 4 |" in page
    assert "[1.00 1.00]" in page


def test_a_server_has_room_for_the_tokens_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text has as many tokens as bytes, and one more, where its characters are not known as a whole."""
    lengths: list[int] = []
    monkeypatch.setattr(first_requests, "contestants", lambda given, engine, longest: lengths.append(longest) or [])
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": "ü" * 50}) + "\n")
    given = first_requests.read_arguments(["--target", str(tmp_path), "--prompts", str(file)])
    first_requests.Benchmark(given, Engine("fake", "Fake", lambda *_: []), Console())
    assert lengths == [101]
