"""A training of several processes: shares of batches, and the same result as that of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import FILE
from mtpc.lab.training.processes import Processes, start_processes
from mtpc.lab.training.recipe import DrafterRecipe
from tests.mtpc.lab.training.tiny_recipes import RECIPES, conversations_of, tiny_target

# What is drawn at random for a micro-batch, and micro-batches that two or three processes cannot divide evenly.
DRAWN = {"micro_batch": 3, "starts": 0.5, "head_rows": 8}


# The command line with trainings in float32: in bfloat16, which fast CPUs choose, rounding would hide a difference.
IN_FLOAT32 = """
import torch
from mtpc.lab.training import precision
precision.training_dtype = lambda device: torch.float32
from mtpc.lab.cli.entry import main
main()
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return tiny_target(tmp_path_factory.mktemp("target"))


def gradients(recipe: DrafterRecipe, model: nn.Module, update: int, processes: Processes) -> dict[str, Tensor]:
    """Of one process, before they are added up."""
    model.zero_grad()
    share: Any = recipe.share(update, processes)
    for micro_batch in share.micro_batches:
        ((recipe.losses(model, micro_batch) * recipe.weights(model)).sum() / share.examples).backward()  # type: ignore[arg-type]
    return {
        name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
        for name, each in model.named_parameters()
    }


@pytest.mark.parametrize("method", RECIPES)
def test_the_shares_of_all_processes_are_the_whole_batch(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    """Of every recipe, also where a micro-batch is a whole update, or where more processes than examples are."""
    drawn = DRAWN if method in ("fastmtp", "gumiho") else {**DRAWN, "head_rows": 0}
    if method == "mtpc on conversations":  # the balancing loss is that of a micro-batch, not a sum over its examples
        drawn["balance"] = 0.0
    changes = [{}] if method == "mtpc" else [drawn | {"micro_batch": 64}, drawn]
    for change in changes:
        recipe = RECIPES[method](target, tmp_path, **change)
        for model in recipe.models().values():
            whole = gradients(recipe, model, 1, Processes())
            for count in (3, 40):
                parts = [gradients(recipe, model, 1, Processes(rank, count)) for rank in range(count)]
                for name, gradient in whole.items():
                    total = torch.stack([part[name] for part in parts]).sum(0)
                    torch.testing.assert_close(total, gradient, atol=1e-5, rtol=1e-3)
                busy = [any(bool(each.any()) for each in part.values()) for part in parts]
                assert busy[0]
                assert all(busy) == (count < 40)


def weights_of(state: Path) -> dict[str, Tensor]:
    """The float32 weights in a state file."""
    learners = torch.load(state)["state"]["learners"]
    weights: dict[str, Tensor] = learners["fastmtp"]["weights"]
    return weights


@pytest.mark.thorough
def test_two_processes_learn_what_one_does(target: FrozenTarget, tmp_path: Path) -> None:
    """On a CPU, by the command line under torchrun; the first process alone prints, saves and keeps the state."""
    (tmp_path / "data").mkdir()
    lines = [each.to_json() for each in conversations_of(target, 0)]
    (tmp_path / "data" / FILE).write_text("\n".join(lines) + "\n")
    settings = ("--epochs", "1", "--batch", "8", "--learning-rate", "1e-2", "--questions", "0")
    drawn = [word for name, value in DRAWN.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    given = ("--target", str(target.folder), "--data", str(tmp_path / "data"), *settings, *drawn)

    def arguments(name: str) -> list[str]:
        return ["train", "fastmtp", *given, "--out", str(tmp_path / name), "--resume", str(tmp_path / f"{name}-state")]

    (tmp_path / "in_float32.py").write_text(IN_FLOAT32)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for name, launcher in (("alone", ()), ("two", torchrun)):
        command = [sys.executable, *launcher, str(tmp_path / "in_float32.py"), *arguments(name)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("written to") == 1
    facts = [json.loads((tmp_path / name / "provenance.json").read_text())["training"] for name in ("alone", "two")]
    assert [each["processes"] for each in facts] == [1, 2]
    assert [each["precision"] for each in facts] == ["float32", "float32"]
    assert facts[0]["updates"] == facts[1]["updates"] > 3
    assert facts[1]["final_losses"] == pytest.approx(facts[0]["final_losses"], rel=1e-3)
    expected, found = weights_of(tmp_path / "alone-state"), weights_of(tmp_path / "two-state")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=2e-4, rtol=1e-3)
    resumed = CliRunner().invoke(app, arguments("two"))  # by one process, which has nothing left to do
    assert resumed.exit_code == 0, resumed.output


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(MTPCError, match=r"4 processes on a machine with 2 GPUs; use --nproc-per-node 2 or fewer"):
        start_processes()
    assert not dist.is_initialized()
