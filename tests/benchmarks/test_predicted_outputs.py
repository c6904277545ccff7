"""The benchmark of predicted outputs: its edits, and what each request brings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import predicted_outputs
from benchmarks.in_turn import WARM_UP
from benchmarks.predicted_outputs import read_edits
from mtpc.errors import MTPCError
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.server import Server
from mtpc.lab.servers.vllm_engine import vllm_counters
from mtpc.lab.text.chat_template import ChatTemplate
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.mtpc.lab.servers.fake_server import at_once, serving
from tests.support.random_models import make_copying


def problem(name: str, lines: int) -> str:
    body = "".join(f"    total += {number}  # {name}\n" for number in range(lines))
    task = {"task_id": f"HumanEval/{name}", "prompt": f"def {name}():\n    total = 0\n"}
    return json.dumps({**task, "canonical_solution": body, "entry_point": name})


def test_edits_rename_every_occurrence(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text("\n".join([problem("short", 1), problem("one", 20), problem("two", 20), problem("long", 99)]))
    edits = read_edits(file, 2)
    assert [edit.after.count("_of_values") for edit in edits] == [21, 21]
    for edit in edits:
        assert edit.before in edit.request and edit.after.replace("_of_values", "") == edit.before
    for count, text, message in ((3, None, "--count is 3"), (1, '{"user": "a"}', "is not HumanEval's file")):
        if text is not None:
            file.write_text(text)
        with pytest.raises(MTPCError, match=message):
            read_edits(file, count)


@contextmanager
def fake_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Two servers in the place of an engine's; yields the bodies of the requests to each, by name."""
    asked: dict[str, list[dict[str, Any]]] = {}
    cleared: list[tuple[str, int]] = []

    @contextmanager
    def side_by_side(
        engine: Engine, settings: Mapping[str, ServerSettings], folder: Path
    ) -> Iterator[dict[str, Server]]:
        with serving(False, wait=at_once) as (plain, without), serving(wait=at_once) as (drafting, drafted):
            asked.update(zip(settings, (without.bodies, drafted.bodies), strict=True))
            states = {plain: without, drafting: drafted}
            made = [
                Server(url, [], clear_history=lambda url: cleared.append((url, len(states[url].bodies))))
                for url in states
            ]
            yield dict(zip(settings, made, strict=True))
        for url, state in states.items():  # after each warm-up, before the request that is measured
            assert [count for each, count in cleared if each == url] == [*range(1, len(state.bodies), 2)]

    with monkeypatch.context() as patch:
        patch.setattr(
            predicted_outputs,
            "find_engine",
            lambda name: Engine(name, "Fake", counters=vllm_counters, command=lambda *_: []),
        )
        patch.setattr(predicted_outputs, "must_be_installed", lambda _: None)
        patch.setattr(predicted_outputs, "side_by_side", side_by_side)
        yield asked


def test_only_drafters_get_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, file = make_chat_folder(tmp_path / "target"), tmp_path / "problems.jsonl"
    make_copying(tmp_path / "one", target)
    file.write_text("\n".join(problem(name, 20) for name in ("one", "two", "three")))
    arguments = ["--target", str(target), "--prompts", str(file), "--count", "3", "--max-tokens", "4"]
    with fake_servers(monkeypatch) as asked:
        assert predicted_outputs.main([*arguments, "--drafter", f"one={tmp_path / 'one'}", "--out", str(tmp_path)]) == 0
    edits = read_edits(file, 3)
    asked = {name: bodies[1::2] for name, bodies in asked.items()}  # without the warm-up before each
    assert [body.get("vllm_xargs") for body in asked["no drafter"]] == [None] * 3
    expected = [given for edit in edits for given in (None, {"prediction": edit.before})]
    assert [body.get("vllm_xargs") for body in asked["one"]] == expected
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [(name, len(each)) for name, each in results.items()] == [
        ("no drafter", 3), ("one", 3), ("one, with prediction", 3),
    ]  # fmt: skip
    assert "one, with prediction" in capsys.readouterr().out


def test_questions_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, file = make_chat_folder(tmp_path / "target"), tmp_path / "questions.jsonl"
    make_copying(tmp_path / "one", target)
    file.write_text("\n".join(json.dumps({"user": user}) for user in ("who are you", "what is it", "why so", "when")))
    arguments = ["--target", str(target), "--prompts", str(file), "--count", "2", "--max-tokens", "4", "--tenants"]
    with fake_servers(monkeypatch) as asked:
        assert predicted_outputs.main([*arguments, "--drafter", f"one={tmp_path / 'one'}", "--out", str(tmp_path)]) == 0
    template = ChatTemplate(target)
    first, again = (
        [template.question(user, system) for user in ("who are you", "why so")]
        for system in (None, predicted_outputs.INSTRUCTIONS)
    )
    assert first[0] != again[0]
    for bodies in asked.values():  # a warm-up before each
        assert all(warm_up["max_tokens"] == WARM_UP and "vllm_xargs" not in warm_up for warm_up in bodies[::2])
    plain = [prompt for prompts in zip(first, again, strict=True) for prompt in prompts]
    assert [body["prompt"] for body in asked["no drafter"][1::2]] == plain
    drafted = asked["one"][1::2]
    expected = [prompt for one, two in zip(first, again, strict=True) for prompt in (two, two, one, two)]
    assert [body["prompt"] for body in drafted] == expected
    parameters = [body.get("vllm_xargs", {}) for body in drafted]
    assert all(len(parameters[number]["prediction"]) > 0 for number in (1, 5))
    tenants = [given.get("tenant") for given in parameters]
    assert tenants == [None, None, "question 0", "question 0", None, None, "question 1", "question 1"]
    output = capsys.readouterr().out
    assert "one, with the tenant's earlier output" in output
    assert "correct" not in output
    for wrong, message in ((["--count", "5"], "--count is 5"), (["--engine", "sglang"], "--tenants needs vLLM")):
        with fake_servers(monkeypatch):
            assert predicted_outputs.main([*arguments, *wrong, "--out", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
