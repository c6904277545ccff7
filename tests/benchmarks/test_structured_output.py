"""The benchmark of structured output: which requests have a grammar, and what its tests tell apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import structured_output
from benchmarks.structured_output import END, SCHEMA, STRUCTURES, compare, questions, windows
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.server import Server
from mtpc.lab.servers.vllm_engine import vllm_counters
from tests.mtpc.lab.chat_folder import make_chat_folder, text_of
from tests.mtpc.lab.servers.fake_server import at_once, serving
from tests.support.random_models import make_copying


def test_validity() -> None:
    person: dict[str, Any] = {"name": "Ann", "age": 30, "trade": "baker"}
    wrong: list[dict[str, Any]] = [{"name": "a" * 21}, {"age": 0}, {"age": 1.5}, {"age": True}, {"trade": "king"}]
    is_valid = STRUCTURES["JSON schema"].is_valid
    assert is_valid(json.dumps(person))
    for values in (*wrong, {"more": 1}):
        assert not is_valid(json.dumps(person | values))
    assert not any(map(is_valid, ('{"name": "Ann", "age": 3', "[]", '{"name": "Ann"}')))
    assert STRUCTURES["regex"].is_valid("Sunday, 7 July 1901")
    assert not STRUCTURES["regex"].is_valid("Sunday, 7 July 19")


def test_a_target_without_a_chat_template_continues_the_question(tmp_path: Path) -> None:
    expected = [f"{one.question}\n" for one in STRUCTURES.values()]
    assert questions(make_chat_folder(tmp_path / "plain", template=None)) == expected
    ids = questions(make_chat_folder(tmp_path / "chat"))
    assert [text_of(list(one)) for one in ids] == [f"user: {one}assistant: " for one in expected]  # type: ignore[arg-type]


def texts(random: np.random.Generator, shares: list[float]) -> list[str]:
    """Outputs that begin alike, then differ, and end at different lengths."""
    chosen = random.choice(len(shares), 300, p=shares)
    return [f"It is {'abc'[number]}{random.integers(10**6)}" for number in chosen]


def test_equal_distributions_are_accepted_and_others_rejected() -> None:
    random = np.random.default_rng(0)
    plain, other = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    assert windows(["ab"], 3) == [(3, ord("a"), ord("b"), END)]
    found = []
    for _ in range(100):
        first, second = (windows(texts(random, plain), 0) for _ in range(2))
        found.append(compare(first, second))
    assert min(one.cells for one in found) > 20
    rejected = np.mean([one.p < 0.05 for one in found])
    assert rejected < 0.15
    assert compare(windows(texts(random, plain), 0), windows(texts(random, other), 0)).p < 1e-4
    assert compare(windows(["a"] * 50, 0), windows(["a"] * 50, 0)) == (1.0, 1)
    assert compare(windows(["a"] * 50, 0), windows(["ab"] * 50, 0)).p < 1e-6


def test_requests_of_all_structures_share_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, list[dict[str, Any]]] = {}

    @contextmanager
    def side_by_side(
        engine: Engine, settings: Mapping[str, ServerSettings], folder: Path
    ) -> Iterator[dict[str, Server]]:
        with serving(False, wait=at_once) as (plain, without), serving(wait=at_once) as (drafting, drafted):
            asked.update(zip(settings, (without.bodies, drafted.bodies), strict=True))
            yield dict(zip(settings, (Server(plain, []), Server(drafting, [])), strict=True))

    engine = Engine("vllm", "Fake", counters=vllm_counters, command=lambda *_: [])
    monkeypatch.setattr(structured_output, "find_engine", lambda name: engine)
    monkeypatch.setattr(structured_output, "must_be_installed", lambda _: None)
    monkeypatch.setattr(structured_output, "side_by_side", side_by_side)
    target = make_chat_folder(tmp_path / "target")
    make_copying(tmp_path / "one", target)
    arguments = ["--target", str(target), "--drafter", f"one={tmp_path / 'one'}", "--out", str(tmp_path)]
    assert structured_output.main([*arguments, "--requests", "9", "--concurrency", "1", "--max-tokens", "4"]) == 0
    schema, regex = {"json": SCHEMA}, STRUCTURES["regex"].fields["vllm"]["structured_outputs"]
    for name, temperatures in (("no drafter", [0.8] * 9 + [1.2] * 9), ("one", [0.8] * 9)):
        assert [body.get("structured_outputs") for body in asked[name]] == [schema, regex, None] * (
            len(temperatures) // 3
        )
        assert [body["temperature"] for body in asked[name]] == temperatures
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [(name, len(one["texts"])) for name, one in results.items()] == [
        ("no drafter", 9), ("no drafter, T = 1.2", 9), ("one", 9),
    ]  # fmt: skip
    shown = capsys.readouterr().out
    assert shown.count("JSON schema") == 3 and "p (chi-square)" in shown
