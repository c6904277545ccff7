"""Acceptance of a draft model without an engine, on code in HumanEval's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.pairs import main
from tests.support.random_pair import make_pair, make_text_target
from tests.support.small_tokenizers import TEXTS, byte_level, sentence_piece


def test_code_in_both_translations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = make_text_target(tmp_path / "target", byte_level())
    pair = make_pair(tmp_path / "pair", target, "slem", tokenizer=sentence_piece(), noise=0.1)
    lines = [json.dumps({"task_id": f"HumanEval/{i}", "prompt": text[:30]}) for i, text in enumerate(TEXTS)]
    (tmp_path / "HumanEval.jsonl").write_text("\n".join(lines))
    options = ["--target", str(target), "--drafter", str(pair), "--prompts", str(tmp_path / "HumanEval.jsonl")]
    options += ["--max-tokens", "12", "--translations", "slem", "tli", "--dtype", "float32"]
    assert main([*options, "--out", str(tmp_path / "found.json")]) == 0
    results = json.loads((tmp_path / "found.json").read_text())["results"]
    expected = [(rule, temperature) for rule in ("slem", "tli") for temperature in (0.0, 0.8)]
    assert [(one["translation"], one["temperature"]) for one in results] == expected
    assert all(1 < one["acceptance length"] < 5 for one in results)
    assert "pair for target" in capsys.readouterr().out
