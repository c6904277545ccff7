"""The comparison of greedy outputs finds a server that verifies wrongly, and the token that was expected instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import greedy_identity
from benchmarks.greedy_identity import choose, complete, first_differences, requests, result
from mtpc.errors import MTPCError
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.plan import GREEDY
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.server import Server
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.support.random_models import make_copying
from tests.support.table_model import Fault, TableModel
from tests.support.table_server import serving

PROMPTS = [tuple((7 * i + j) % 40 for j in range(4 + i % 3)) for i in range(10)]


def test_a_wrong_bonus_token_is_found_and_no_difference_else() -> None:
    with (
        serving(TableModel(drafts=False)) as plain,
        serving(TableModel()) as right,
        serving(TableModel("bonus from the wrong row")) as wrong,
    ):
        baseline = Client(plain, 4)
        expected = complete(baseline, PROMPTS, 30)
        assert expected.drafts.drafts == 0
        for url, equal in ((right, True), (wrong, False)):
            found = complete(Client(url, 4), PROMPTS, 30)
            different = list(first_differences(baseline, PROMPTS, expected.texts, found.texts))
            row = result("one", found, different, 1e-3)
            assert row["outputs"] == 10 and row["accepted"] > 20
            assert (row["equal"] == 10, row["equal tokens"] == 300, row["not rounding"] == 0) == (equal,) * 3
    for one in different:
        text = expected.texts[one.prompt]
        assert found.texts[one.prompt][: one.position] == text[: one.position]
        assert one.token == found.texts[one.prompt][one.position] != one.expected == one.alone == text[one.position]
        assert one.gap is None or one.gap > 0
    rounding = result("one", found, different, 1e9)
    assert rounding["rounding"] == sum(one.gap is not None for one in different)


def test_the_command_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    @contextmanager
    def running(engine: Engine, settings: ServerSettings, log: Path) -> Iterator[Callable[[], Server]]:
        started.append("none" if settings.drafter is None else settings.drafter.name)
        fault: Fault | None = "bonus from the wrong row" if started[-1] == "wrong" else None
        with serving(TableModel(fault, drafts=started[-1] != "none")) as url:
            yield lambda: Server(url, [])

    monkeypatch.setattr(greedy_identity, "running", running)
    monkeypatch.setattr(greedy_identity, "find_engine", lambda _: Engine("fake", "Fake", lambda *_: []))
    monkeypatch.setattr(greedy_identity, "must_be_installed", lambda _: None)
    monkeypatch.setattr(greedy_identity, "choose", lambda *_: PROMPTS)
    target = make_chat_folder(tmp_path / "target")
    right, wrong = (make_copying(tmp_path / name, target) for name in ("right", "wrong"))
    options = [
        "--target",
        str(target),
        "--prompts",
        "asked.jsonl",
        "--max-tokens",
        "30",
        "--out",
        str(tmp_path / "out"),
    ]
    options += ["--drafter", f"right={right}"]
    assert greedy_identity.main(options) == greedy_identity.main(options) == 0
    assert started == ["right", "none"]
    assert greedy_identity.main([*options, "--drafter", f"wrong={wrong}"]) == 2
    assert started == ["right", "none", "wrong", "none"]
    captured = capsys.readouterr()
    assert "wrong: {'prompt':" in captured.out and "differs by more than rounding" in captured.err
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert [row["equal"] == row["outputs"] == 10 for row in rows] == [True, False]


def test_batches_are_mixed() -> None:
    sampled = [request.sampling != GREEDY for request in requests(PROMPTS, 128)]
    assert sampled == [False, False, False, True] * 3 + [False]
    assert [request.tokens for request in requests(PROMPTS, 128)[2:4]] == [128, 32]


def test_prompts_are_spread_over_the_file(tmp_path: Path) -> None:
    lines = [f'{{"user": "{chr(97 + i) * (i + 1)}"}}\n' for i in range(20)]
    (tmp_path / "asked.jsonl").write_text("".join(lines))
    target = make_chat_folder(tmp_path / "target")
    every = choose(tmp_path / "asked.jsonl", target, 50, 1000)
    assert len(every) == 20 and choose(tmp_path / "asked.jsonl", target, 4, 1000) == every[::5]
    longest = len(every[9])
    assert choose(tmp_path / "asked.jsonl", target, 50, longest) == every[:10]
    with pytest.raises(MTPCError, match="at most --longest 2 tokens"):
        choose(tmp_path / "asked.jsonl", target, 50, 2)
