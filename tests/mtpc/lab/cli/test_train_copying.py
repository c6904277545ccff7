"""`mtpc train copying`: a directory that copies, with chances that were counted or the common ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtpc.files import provenance
from mtpc.lab.cli.main import app
from mtpc.methods.drafter import load_drafter
from mtpc.prompt_lookup.table import COMMON, FILE, CopyTable
from tests.support.random_models import make_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("target"))


def train(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["train", "copying", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_without_prompts_the_chances_are_the_common_ones(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "drafter"
    assert f"written to {out}" in train("--target", target, "--out", out, "--num-drafts", 7)
    drafter = load_drafter(out)
    assert not drafter.config.own_drafts
    assert drafter.config.num_drafts == 7
    assert CopyTable.of(out).chances == COMMON
    assert provenance.read(out)["target"] == target.name


def test_chances_are_counted_along_what_the_target_writes(target: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "drafter"
    prompts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("It was the best of", "Call me")))
    printed = train("--target", target, "--out", out, "--prompts", prompts, "--length", 40, "--longest", 5)
    assert "matching tokens" in printed
    counted = json.loads((out / FILE).read_text())
    assert sum(times for _, times in counted["counts"]) == 2 * 2 * 40  # prompts, temperatures, tokens
    assert CopyTable.of(out).chances == tuple(counted["chances"])
    assert len(counted["chances"]) == 5


def test_prompts_of_another_target(target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("")
    arguments = ["train", "copying", "--target", str(target), "--out", str(tmp_path / "out"), "--prompts", str(prompts)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
