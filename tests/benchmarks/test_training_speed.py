"""The speed of a training: its operations are counted, and its tokens are those of whole conversations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import training_speed
from mtpc.lab.text.conversations import FILE
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import make_target


def test_operations_and_tokens_of_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = make_target("qwen2")
    target.to(torch.bfloat16).save_pretrained(tmp_path / "target")
    (tmp_path / "data").mkdir()
    conversations = make_conversations(target.float(), 12)
    (tmp_path / "data" / FILE).write_text("\n".join(each.to_json() for each in conversations) + "\n")
    monkeypatch.setattr(training_speed, "SIZE", 32)
    folders = ("--target", tmp_path / "target", "--data", tmp_path / "data", "--out", tmp_path / "out")
    short = ("--epochs", "2", "--batch", "4", "--questions", "0")
    assert training_speed.main(["train", "fastmtp", *map(str, folders), *short]) == 0
    facts = json.loads((tmp_path / "out" / "provenance.json").read_text())["training"]
    (row,) = re.findall(r"^\| train fastmtp \|.*$", capsys.readouterr().out, re.MULTILINE)
    _, _, updates, _, _, operations, *_ = row.split("|")
    assert int(updates) == facts["updates"] == facts["planned_updates"]
    layers = sum(weight.numel() for name, weight in target.named_parameters() if "layers" in name and weight.ndim == 2)
    assert float(operations) * 1e6 > 2 * layers  # of the target alone
    # The folder is not empty now, so the same training fails: the row of the first one is not printed again.
    assert training_speed.main(["train", "fastmtp", *map(str, folders), *short]) == 2
    again = capsys.readouterr()
    assert "| train fastmtp |" not in again.out
    assert "the training ended with exit code 2" in again.err


def test_tokens_are_those_of_the_updates_so_far() -> None:
    facts = {"seconds": 10.0, "updates": 20, "planned_updates": 100, "tokens": 4000, "epochs": 2}
    (cells,) = training_speed.table("train fastmtp", facts, 8e12, {"float32": 2e12}).rows
    assert cells == ["train fastmtp", "20", "10", "160", "5000.00", "800", "40% of 2000"]


def test_another_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert training_speed.main(["bench", "--out", "x"]) == 2
    assert training_speed.main(["train", "fastmtp"]) == 2
    assert "give the arguments of an `mtpc train` command" in capsys.readouterr().err
    assert training_speed.main(["train", "fastmtp", "--out", "x", "--resume=state"]) == 2
    assert "leave out --resume" in capsys.readouterr().err
