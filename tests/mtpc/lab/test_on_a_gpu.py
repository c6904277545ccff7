"""Trainings and evaluations find on a GPU what they find on a CPU, on a simulated one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from typer.testing import CliRunner

from mtpc.draft_model.pair import Rule
from mtpc.lab.check_acceptance import expectation
from mtpc.lab.check_acceptance.expectation import AcceptanceReference
from mtpc.lab.cli import train_and_score
from mtpc.lab.cli.main import app
from mtpc.lab.evaluation import evaluate
from mtpc.lab.evaluation.decoding import speculate_text
from mtpc.lab.evaluation.evaluate import EvaluationPlan, evaluate_folders
from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.evaluation.trees import TreeSettings
from mtpc.lab.targets import frozen
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training import precision, trainer
from mtpc.lab.training.recipes import byte_target as byte_target_recipe
from mtpc.lab.training.recipes.byte_target import ByteRecipe, train_byte_target
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.lab.training.trainer import Trainer
from mtpc.methods.drafter import save_drafter
from tests.mtpc.lab.corpus_folder import make_corpus
from tests.mtpc.lab.evaluation.drafters import SCORED, tiny_drafter
from tests.mtpc.lab.training import tiny_recipes
from tests.mtpc.lab.training.tiny_recipes import RECIPES, conversations_of, tiny_target
from tests.support.random_pair import load_pair, make_pair, make_text_target
from tests.support.simulated_gpu import simulated_gpu
from tests.support.small_tokenizers import byte_level, byte_target, sentence_piece
from tests.support.tiny_models import VOCAB

PROMPTS = Prompts({"chat": [[3, 4, 5], [6, 7]], "code": [[5, 4], [9, 9, 2]]})
BYTES = ByteTargetConfig(
    hidden_size=64, layers=1, heads=1, kv_heads=1, mlp_size=32, context=96, updates=4, tokens_per_update=192,
    warmup=2, future_bytes=4,
)  # fmt: skip
CIRCUITS = ("--circuits", "hmm,ff", "--windows", "3", "--rank", "2", "--leaf-features", "8", "--trunk-size", "8")
SHORT = ("--updates", "4", "--texts", "2", "--positions", "8", "--prompts", "2")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    target = tiny_target(tmp_path_factory.mktemp("target"))
    GenerationConfig().save_pretrained(target.folder)  # no end
    return target


@contextmanager
def running_on(name: str) -> Iterator[str]:
    """Make this the device of all commands, and float32 the precision of trainings."""
    with pytest.MonkeyPatch.context() as patched, nullcontext(name) if name == "cpu" else simulated_gpu() as device:
        for module in (frozen, evaluate, expectation, byte_target_recipe, train_and_score):
            patched.setattr(module, "default_device", lambda: device)
        for module in (precision, trainer, train_and_score):
            patched.setattr(module, "training_dtype", lambda device: torch.float32)
        yield device


def on_both(result: Callable[[str], Any]) -> tuple[Any, Any]:
    """Return what is found on the CPU and on the GPU."""
    found = []
    for name in ("cpu", "gpu"):
        with running_on(name) as device:
            found.append(result(device))
    return found[0], found[1]


def test_tensors_of_two_devices_are_refused() -> None:
    with simulated_gpu() as device:
        weights = torch.ones(3, device=device, requires_grad=True)
        index = torch.tensor(1)
        for wrong in (
            lambda: weights + torch.ones(3),
            lambda: torch.stack([weights, torch.ones(3)]),
            lambda: torch.stack([weights.sum(), torch.ones(())]),
            lambda: torch.zeros(()).add_(weights.sum().detach()),
            lambda: weights.index_select(0, index),
            lambda: torch.nn.functional.embedding(index, weights[:, None]),
        ):
            with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
                wrong()
        here, there = torch.Generator(device), torch.Generator()
        for draw in (
            lambda: torch.rand(3, generator=here),
            lambda: torch.rand(3, device=device, generator=there),
            lambda: torch.multinomial(weights.detach(), 1, generator=there),
        ):
            with pytest.raises(RuntimeError, match="expected a generator of the tensor's device"):
                draw()
        assert torch.multinomial(weights.detach(), 1, generator=here).item() < 3
        assert (weights * torch.tensor(2.0)).tolist() == [2, 2, 2]  # a number may lie on the CPU
        assert weights[torch.tensor([1])].tolist() == [1]  # so may an index
        with pytest.raises(TypeError, match="to numpy"):
            weights.detach().numpy()
        (weights * torch.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
        assert weights.grad is not None and str(weights.grad.device) == device
        assert weights.grad.tolist() == weights.grad.cpu().tolist() == [1, 2, 3]


@pytest.mark.parametrize("method", sorted(RECIPES))
def test_a_training_that_is_resumed(
    target: FrozenTarget, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = conversations_of(target, 0)
    monkeypatch.setattr(tiny_recipes, "conversations_of", lambda *_: conversations)

    class StoppedError(Exception):
        pass

    def stop(update: int, losses: dict[str, float]) -> None:
        if update == 5:
            raise StoppedError

    def losses(device: str) -> list[list[float]]:
        here, state = FrozenTarget(target.folder, device=device), tmp_path / f"{device}.state"
        with pytest.raises(StoppedError):
            Trainer(RECIPES[method](here, tmp_path), resume=state, save_every=3).run(stop)
        resumed = Trainer(RECIPES[method](here, tmp_path), resume=state, save_every=3)
        assert resumed.update == 3
        resumed.run()
        return [loss for learner in resumed.learners for loss in learner.losses]

    on_cpu, on_gpu = on_both(losses)
    for expected, found in zip(on_cpu, on_gpu, strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_byte_target_that_is_widened(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "corpus", 256)
    train_byte_target(corpus, tmp_path / "narrow", BYTES)

    def losses(device: str) -> list[list[float]]:
        training = Trainer(ByteRecipe(corpus, replace(BYTES, mlp_size=48), tmp_path / "narrow"))
        training.run()
        (learner,) = training.learners
        return [*learner.losses, [learner.history[-1]["heldout"]]]

    on_cpu, on_gpu = on_both(losses)
    for expected, found in zip(on_cpu, on_gpu, strict=True):
        assert found == pytest.approx(expected, rel=2e-2)  # on the CPU it computes in bfloat16


@pytest.mark.parametrize("name", SCORED)
def test_an_evaluation(target: FrozenTarget, tmp_path: Path, name: str) -> None:
    save_drafter(tmp_path / "drafter", tiny_drafter(name, target.model), {})
    trees = TreeSettings(() if name == "medusa" else (3, 6))
    plan = EvaluationPlan(temperatures=(1.0, 0.0), length=14, loop=1, trees=trees)
    on_cpu, on_gpu = on_both(lambda device: evaluate_folders(target.folder, [tmp_path / "drafter"], PROMPTS, plan))
    for title, columns in on_cpu.items():
        for column, rates in columns.items():
            for figure, expected in rates.items():
                assert on_gpu[title][column][figure] == pytest.approx(expected, abs=2e-3), (title, column, figure)


@pytest.mark.parametrize("translation", ["tli", "slem", "slrs"])
def test_decoding_with_a_draft_model_of_another_tokenizer(tmp_path: Path, translation: Rule) -> None:
    folder = make_text_target(tmp_path / "target", byte_level(), seed=3)
    tokenizer = byte_target() if translation == "slrs" else sentence_piece()
    drafter = make_pair(tmp_path / "drafter", folder, translation, tokenizer=tokenizer, min_confidence=0.05)
    prompt = byte_level().encode("The quick brown fox jumps over")

    def texts(device: str) -> list[tuple[list[int], list[int]]]:
        part, found = load_pair(drafter, folder, device), []
        part.verifies_lazily = True  # where it can, by SLRS
        for temperature in (0.0, 1.0):
            options = {"temperature": temperature, "generator": torch.Generator().manual_seed(0)}
            decoded = speculate_text(FrozenTarget(folder, device=device), part, prompt, 40, 3, **options)
            found.append((decoded.tokens, decoded.accepted))
        return found

    on_cpu, on_gpu = on_both(texts)
    assert on_cpu == on_gpu
    assert any(sum(accepted) for _, accepted in on_cpu)


def test_acceptance_reference(target: FrozenTarget, tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", tiny_drafter("mtpc", target.model), {})

    def counts(device: str) -> Any:
        reference = AcceptanceReference(target.folder, tmp_path / "drafter", 2, 1.0, samples=True)
        return reference.counts((3, 4, 5), (6, 7, 8, 1, 2, 3)).to_json()

    on_cpu, on_gpu = on_both(counts)
    assert on_cpu == on_gpu


def test_train_and_evaluate_commands(target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.lab.cli.train_and_score.EvaluationPlan", lambda: EvaluationPlan(length=16, loop=1))
    make_corpus(tmp_path / "corpus", VOCAB, length=2000)
    source = ("--target", target.folder, "--corpus", tmp_path / "corpus")

    def results(device: str) -> Any:
        out = tmp_path / device
        drafters = [out / name for name in ("mtpc-hmm-n3", "mtpc-ff-n3")]
        scores = ("--count", 2, "--length", 16, "--loop", 1, "--out", out / "results")
        train = ("train", "mtpc", *source, *CIRCUITS, *SHORT, "--out", out)
        for command in (train, ("evaluate", *drafters, *source, *scores)):
            ended = CliRunner().invoke(app, list(map(str, command)))
            assert ended.exit_code == 0, ended.output
        return json.loads((out / "results").read_text())["results"]["mtpc-hmm-n3"]["all T=0"]

    on_cpu, on_gpu = on_both(results)
    assert on_gpu["acceptance_length"] == pytest.approx(on_cpu["acceptance_length"], abs=0.05)
