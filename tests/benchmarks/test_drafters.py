"""The benchmark of acceptance: a whole run on tiny models, and what one that is started again does anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import GenerationConfig

from benchmarks import drafters
from benchmarks.kept import Kept
from mtpc.lab.evaluation.evaluate import counts_of
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_gumiho import make_gumiho

TREES = (", tree of 4", ", tree of 4 + 2 borrowed")


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """Without a drafter."""
    make_chat_folder(tmp_path / "target")
    model = build_byte_llama(ByteTargetConfig(hidden_size=64, layers=2, heads=1, kv_heads=1)).eval()
    model.save_pretrained(tmp_path / "target")
    GenerationConfig().save_pretrained(tmp_path / "target")
    make_gumiho(tmp_path / "gumiho", tmp_path / "target", {"positions": 2, "blocks": 1}, num_hidden_layers=1)
    make_fastmtp(tmp_path / "fastmtp", tmp_path / "target")
    (tmp_path / "asked.jsonl").write_text('{"kind": "chat", "user": "Hello"}\n{"kind": "code", "user": "x = 1"}\n')
    arguments = ["--target", str(tmp_path / "target"), "--prompts", str(tmp_path / "asked.jsonl"), "--max-tokens", "12"]
    return [*arguments, "--trees", "4", "--borrow", "2", "--max-children", "2", "--out", str(tmp_path / "out")]


def test_a_whole_run_and_one_with_a_drafter_more(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[list[str]] = []

    def counting(target, new, *others):  # type: ignore[no-untyped-def]
        scored.append([one.name for one in new])
        return counts_of(target, new, *others)

    monkeypatch.setattr(drafters, "counts_of", counting)
    first, second = (["--drafter", f"{name}={tmp_path / name}"] for name in ("gumiho", "fastmtp"))
    assert drafters.main([*given, *first]) == 0
    assert scored == [["gumiho"]] * 4  # two kinds at two temperatures
    before = json.loads((tmp_path / "out" / "results.json").read_text())["found"]
    assert drafters.main([*given, *first, *second]) == 0
    assert scored[4:] == [["fastmtp"]] * 4
    found = json.loads((tmp_path / "out" / "results.json").read_text())["found"]
    assert [{**cell, "rates": {k: v for k, v in cell["rates"].items() if "gumiho" in k}} for cell in found] == before
    titles = [f"{name}{tree}" for name in ("gumiho", "fastmtp") for tree in ("", *TREES)]
    for cell in found:
        assert set(cell["rates"]) == set(titles)
        anywhere = [cell["rates"][f"fastmtp{tree}"]["length_anywhere"] for tree in TREES]
        assert anywhere == sorted(anywhere)
    page = (tmp_path / "out" / "results.md").read_text()
    assert "| drafter | tokens verified | chat | code | mean | relative to its chain |" in page
    assert "| gumiho, tree of 4 + 2 borrowed | 7 |" in page
    assert "| drafter | draft token 1 | draft token 2 | draft token 3 | draft token 4 |" in page
    assert (tmp_path / "out" / "accuracy.png").stat().st_size > 1000
    assert drafters.main([*given, *first, "--drafts", "gumiho=2"]) == 0
    assert scored[8:] == [["gumiho"]] * 4


def test_what_is_wrong_is_said_in_one_sentence(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert drafters.main([*given, "--drafter", "x=nowhere"]) == 2
    assert "\ndrafters: nowhere is not a directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        drafters.main([*given, "--drafter", "nowhere"])
    assert "expected NAME=DIR, not 'nowhere'" in capsys.readouterr().err


def test_what_is_kept_counts_as_long_as_it_is_made_of_the_same(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept")
    assert kept.read("a b", {"x": (1, 2)}) is None
    kept.write("a b", {"x": (1, 2)}, [0.5])
    assert kept.read("a b", {"x": (1, 2)}) == [0.5]
    assert kept.read("a b", {"x": (1, 3)}) is None
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["a-b.json"]
