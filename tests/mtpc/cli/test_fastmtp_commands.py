"""`mtpc train fastmtp` and `mtpc evaluate fastmtp`, whole, on a tiny target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mtpc.cli.main import app
from mtpc.distill.conversations import FILE
from mtpc.drafter import Target
from mtpc.fastmtp.directory import load_layer
from tests.mtpc.fastmtp.conversations import make_conversations
from tests.mtpc.fastmtp.models import SIZE, VOCAB, make_target


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A target and its conversations."""
    target, data = tmp_path / "target", tmp_path / "data"
    model = make_target("qwen2")
    model.save_pretrained(target)
    data.mkdir()
    conversations = make_conversations(model, 130)
    assert {each.kind for each in conversations if each.heldout} == {"chat", "code"}
    (data / FILE).write_text("\n".join(each.to_json() for each in conversations) + "\n")
    return target, data


def test_a_layer_is_trained_scored_and_scored_again(folders: tuple[Path, Path], tmp_path: Path) -> None:
    target, data = folders
    given = ("--target", target, "--data", data)
    recipe = ("--epochs", "2", "--batch", "16", "--learning-rate", "1e-2", "--questions", "2")
    trained = run("train", "fastmtp", *given, "--out", tmp_path / "drafter", *recipe)
    assert trained.exit_code == 0, trained.output
    layer = load_layer(tmp_path / "drafter", Target(SIZE, VOCAB))
    assert layer.config.num_drafts == 3
    provenance = json.loads((tmp_path / "drafter" / "provenance.json").read_text())
    assert provenance["training"]["updates"] == 16
    assert len(provenance["training"]["final_losses"]) == 3
    assert len(provenance["heldout_acceptance"]["all T=0"]["marginal_acceptance"]) == 3

    vanilla = ("--steps", "1", "--start", tmp_path / "drafter", "--questions", "0", *recipe[:4])
    again = run("train", "fastmtp", *given, "--out", tmp_path / "vanilla", *vanilla)
    assert again.exit_code == 0, again.output
    assert load_layer(tmp_path / "vanilla").config.num_drafts == 1
    assert "heldout_acceptance" not in json.loads((tmp_path / "vanilla" / "provenance.json").read_text())

    both = (tmp_path / "drafter", tmp_path / "vanilla")
    options = (
        "--num-drafts",
        "2",
        "--questions",
        "1",
        "--length",
        "20",
        "--temperatures",
        "0",
        "--out",
        tmp_path / "r",
    )
    scored = run("evaluate", "fastmtp", *both, *given, *options)
    assert scored.exit_code == 0, scored.output
    results = json.loads((tmp_path / "r").read_text())["results"]
    assert set(results) == {"drafter", "vanilla"}
    assert set(results["vanilla"]) == {"chat T=0", "code T=0", "all T=0", "all T=0, real loop"}
    assert len(results["vanilla"]["all T=0"]["marginal_acceptance"]) == 2


def test_nothing_held_out(folders: tuple[Path, Path], tmp_path: Path) -> None:
    target, data = folders
    model = make_target("qwen2")
    few = [each for each in make_conversations(model, 30) if not each.heldout]
    (data / FILE).write_text("\n".join(each.to_json() for each in few) + "\n")
    given = ("--target", target, "--data", data)
    trained = run("train", "fastmtp", *given, "--out", tmp_path / "drafter", "--epochs", "1", "--batch", "16")
    assert trained.exit_code == 0, trained.output
    scored = run("evaluate", "fastmtp", tmp_path / "drafter", *given)
    assert scored.exit_code == 2
    assert "no held-out conversation" in scored.stderr
