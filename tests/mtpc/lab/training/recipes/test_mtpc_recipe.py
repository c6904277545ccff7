"""The recipe of circuits: they learn, updates equal a reference implementation's, windows depend on the seed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtpc.autoregressive.lora import lora_of
from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.byte_target import sample_batch
from mtpc.lab.training.recipes.mtpc_batches import training_windows
from mtpc.lab.training.recipes.mtpc_loss import discounts, distribution_losses, token_losses
from mtpc.lab.training.recipes.mtpc_recipe import CircuitRecipe, circuit_of
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import BatchShape, CircuitSettings
from mtpc.lab.training.trainer import Trainer
from mtpc.methods.drafter import load_drafter, save_drafter
from tests.mtpc.lab.corpus_folder import make_corpus
from tests.mtpc.lab.training.tiny_recipes import CIRCUITS, MTPC, circuit, of_mtpc, tiny_target
from tests.support.tiny_models import VOCAB, make_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return tiny_target(tmp_path_factory.mktemp("target"))


def test_windows_end_with_the_positions_of_the_target(tmp_path: Path) -> None:
    make_target("llama", max_position_embeddings=40).save_pretrained(tmp_path / "target")
    target, corpus = FrozenTarget(tmp_path / "target"), make_corpus(tmp_path / "corpus", VOCAB)
    recipe = CircuitRecipe(target, corpus, CIRCUITS, CircuitSettings())
    assert recipe.settings.batch == BatchShape(context=40 - 4, positions=40 - 4)
    with pytest.raises(MTPCError, match="reads 40 tokens, too few for windows of 40"):
        CircuitRecipe(target, corpus, {"ff": circuit("ff", 40)}, CircuitSettings())


def test_leaves_through_the_output_head_need_conversations(target: FrozenTarget, tmp_path: Path) -> None:
    head: dict[str, Any] = {"leaves": "target", "token_input": True, "trunk_size": 8}
    with pytest.raises(MTPCError, match="--leaves target trains on conversations only: add --data"):
        CircuitRecipe(target, make_corpus(tmp_path, VOCAB), {"hmm": circuit("hmm", 4, **head)}, MTPC)


@pytest.mark.parametrize("loss", ["nll", "kl"])
def test_every_circuit_learns(target: FrozenTarget, tmp_path: Path, loss: str) -> None:
    trainer = Trainer(of_mtpc(target, tmp_path, updates=150, learning_rate=2e-2, micro_batch=64, loss=loss))
    trainer.run()
    for learner in trainer.learners:
        losses = [learner.loss(positions) for positions in learner.losses]
        assert len(losses) == 150
        assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:5])


@pytest.mark.parametrize("loss", ["nll", "kl"])
def test_an_update_is_that_of_a_plain_loop(target: FrozenTarget, tmp_path: Path, loss: str) -> None:
    """Windows read one by one off the target's own pass, one gradient, clipped, and one step of Adam by hand."""
    recipe = of_mtpc(target, tmp_path, loss=loss)
    assert isinstance(recipe, CircuitRecipe)
    shape, longest = MTPC.batch, 4
    generator = np.random.default_rng(0)  # seed 0, update 0
    texts = sample_batch(recipe.corpus.tokens("train"), shape.texts, shape.context + longest, generator)
    starts = [generator.choice(shape.context, shape.positions, replace=False) for _ in range(shape.texts)]
    features = target.features(texts)
    trainer = Trainer(recipe)
    with pytest.raises(StopIteration):
        trainer.run(lambda update, losses: next(iter(())))
    for learner, (name, drafter) in zip(trainer.learners, recipe.models().items(), strict=True):
        part, window = circuit_of(drafter), CIRCUITS[name].window
        total, by_position = torch.zeros(()), torch.zeros(window)
        weights = discounts(window, 0.8, torch.device("cpu"))
        for row in range(shape.texts):
            for t in starts[row]:
                x, logits = texts[row, t + 1 : t + 1 + window], features.logits[row, t : t + window]
                with torch.autocast("cpu", torch.bfloat16):
                    state = features.hidden[row, t][None].clone()
                    if loss == "kl":
                        losses = distribution_losses(part, state, x[None], logits[None].clone())
                    else:
                        losses = token_losses(part, state, x[None])
                total = total + (losses[0] * weights).sum() / (shape.texts * shape.positions)
                by_position += losses[0].detach() / (shape.texts * shape.positions)
        gradients = torch.autograd.grad(total, list(drafter.parameters()), allow_unused=True)
        norm = torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm()
        rate = MTPC.learning_rate / MTPC.warmup_updates
        expected = []
        for parameter, gradient in zip(drafter.parameters(), gradients, strict=True):
            start = parameter.detach()
            clipped = torch.zeros_like(start) if gradient is None else gradient / max(1.0, float(norm))
            expected.append((clipped, start - rate * clipped / (clipped.abs() + 1e-8)))
        assert learner.losses[0] == pytest.approx(by_position.tolist(), rel=2e-2)
        for parameter, (gradient, wanted) in zip(learner.model.parameters(), expected, strict=True):
            sure = gradient.abs() > 0.2 * gradient.abs().max().clamp_min(1e-4)
            torch.testing.assert_close(parameter[sure], wanted[sure], atol=rate / 100, rtol=0)


@pytest.mark.parametrize("micro_batch", [64, 7])
def test_adapters_learn_with_their_circuit(target: FrozenTarget, tmp_path: Path, micro_batch: int) -> None:
    """One micro-batch is one text here, whose last states the circuit reads at the positions of its windows."""
    config = circuit("hmm", 4, lora=lora_of(target.model.config, 1, 3))
    settings = dataclasses.replace(
        MTPC, updates=100, learning_rate=1e-2, micro_batch=micro_batch, batch=BatchShape(2, 20, 6)
    )
    corpus = make_corpus(tmp_path / "corpus", VOCAB, seed=0)
    recipe = CircuitRecipe(target, corpus, {"hmm": config}, settings)
    drafter = recipe.models()["hmm"]
    parts = list(recipe.batch(0).micro_batches)
    whole = training_windows(target, recipe.tokens, settings.batch, 4, 0)
    assert len(parts) == (1 if micro_batch == 64 else 2)
    with torch.no_grad():  # adapters have no effect yet
        found = torch.cat([part.read_by(drafter) for part in parts])
    torch.testing.assert_close(found, whole.hidden)
    trainer = Trainer(recipe)
    trainer.run()
    learner = trainer.learners[0]
    losses = [learner.loss(positions) for positions in learner.losses]
    assert np.mean(losses[-10:]) < 0.95 * np.mean(losses[:5])
    for name, weight in learner.model.named_parameters():
        assert "lora_B" not in name or weight.abs().max() > 0
    save_drafter(tmp_path / "drafter", learner.model, {})
    loaded = target.bind(load_drafter(tmp_path / "drafter", target.facts))
    with torch.no_grad():
        found = torch.cat([part.read_by(loaded) for part in recipe.batch(0).micro_batches])
    assert (found - whole.hidden).abs().max() > 1e-3


def test_windows_are_the_text_after_their_state_and_a_function_of_the_seed(
    target: FrozenTarget, tmp_path: Path
) -> None:
    recipe = of_mtpc(target, tmp_path)
    assert isinstance(recipe, CircuitRecipe)
    first, again, other = (training_windows(target, recipe.tokens, BatchShape(2, 20, 6), 4, seed) for seed in (3, 3, 4))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.hidden, again.hidden)
    assert not torch.equal(first.tokens, other.tokens)
    assert first.tokens.shape == (12, 4)
    assert first.logits.shape[:2] == (12, 4)


def test_every_update_of_every_seed_has_windows_of_its_own(target: FrozenTarget, tmp_path: Path) -> None:
    """Also of a training that another version of this code began."""
    for seed, update in ((0, 0), (1, 0), (2, 3)):
        recipe = of_mtpc(target, tmp_path / f"{seed} {update}", seed=seed)
        assert isinstance(recipe, CircuitRecipe)
        expected = training_windows(target, recipe.tokens, MTPC.batch, 4, seed * 2**32 + update)
        assert torch.equal(torch.cat([part.tokens for part in recipe.batch(update).micro_batches]), expected.tokens)


def test_the_rate_of_the_shipped_recipe(target: FrozenTarget, tmp_path: Path) -> None:
    recipe = of_mtpc(target, tmp_path, updates=2400, warmup_updates=50, learning_rate=2e-3)
    assert recipe.schedule == Schedule(2e-3, 2400, 50, 1200, "linear", 0.05)


def test_gamma_hangs_on_the_window() -> None:
    assert (CircuitSettings().discount(8), CircuitSettings().discount(16), CircuitSettings(gamma=0.7).discount(16)) == (
        0.8,
        0.9,
        0.7,
    )


def test_the_least_that_a_training_can_be(target: FrozenTarget, tmp_path: Path) -> None:
    least = {"updates": 1, "warmup_updates": 0, "micro_batch": 1, "batch": BatchShape(texts=1, context=1, positions=1)}
    trainer = Trainer(of_mtpc(target, tmp_path, **least))
    trainer.run()
    assert [len(learner.losses) for learner in trainer.learners] == [1, 1]
