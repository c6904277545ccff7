"""Training: it learns, it stops and goes on as if it had not stopped, and it leaves the target alone."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mtpc.distill.conversations import Conversation
from mtpc.errors import MTPCError
from mtpc.fastmtp.trainer import TrainConfig, Trainer
from mtpc.targets.frozen import FrozenTarget
from tests.mtpc.fastmtp.conversations import make_conversations
from tests.mtpc.fastmtp.models import make_layer, make_target

RECIPE = TrainConfig(steps=2, epochs=4, batch=8, learning_rate=3e-3, micro_batch=4)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


@pytest.fixture(scope="module")
def conversations(target: FrozenTarget) -> list[Conversation]:
    return make_conversations(target.model, 40)


VARIANTS = [
    {"loss": "ce"},
    {"loss": "kl"},
    {"attention": "paper"},
    {"optimizer": "muon"},
    {"head_rows": 8},
    {"learn_from": "all"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_both_steps_learn(target: FrozenTarget, conversations: list[Conversation], variant: dict[str, Any]) -> None:
    config = dataclasses.replace(RECIPE, epochs=12, learning_rate=1e-2, **variant)
    before = [p.clone() for p in target.model.parameters()]
    trainer = Trainer(target, conversations, config)
    trainer.run(lambda update, losses: None)
    first, last = (torch.tensor(trainer.losses[part]).mean(0) for part in (slice(5), slice(-5, None)))
    assert (last < 0.9 * first).all()
    assert len(trainer.losses) == trainer.updates == 60
    assert all(torch.equal(a, b) for a, b in zip(before, target.model.parameters(), strict=True))


def test_kept_states_are_those_that_the_target_would_compute(
    target: FrozenTarget, conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Trainer(target, conversations, RECIPE)
    fresh.run(lambda update, losses: None)
    kept = Trainer(target, conversations, RECIPE, keep_states=True)
    reads, hidden = [], target.hidden
    monkeypatch.setattr(target, "hidden", lambda tokens: reads.append(len(tokens)) or hidden(tokens))
    kept.run(lambda update, losses: None)
    torch.testing.assert_close(kept.losses, fresh.losses, atol=2e-3, rtol=2e-3)
    assert len(conversations) <= sum(reads) < 2 * len(conversations)


@pytest.mark.parametrize("variant", [{"optimizer": "adamw"}, {"optimizer": "muon", "head_rows": 8}], ids=str)
def test_a_resumed_training_ends_as_one_that_was_not_stopped(
    target: FrozenTarget, conversations: list[Conversation], tmp_path: Path, variant: dict[str, Any]
) -> None:
    recipe = dataclasses.replace(RECIPE, **variant)
    whole = Trainer(target, conversations, recipe)
    whole.run(lambda update, losses: None)

    class StoppedError(Exception):
        pass

    def stop(update: int, losses: list[float]) -> None:
        if update == 11:
            raise StoppedError

    state = tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(target, conversations, recipe, resume=state, save_every=5).run(stop)
    resumed = Trainer(target, conversations, recipe, resume=state, save_every=5)
    assert resumed.update == 10
    resumed.run(lambda update, losses: None)
    assert resumed.losses == whole.losses
    assert all(torch.equal(a, b) for a, b in zip(resumed.layer.parameters(), whole.layer.parameters(), strict=True))
    with pytest.raises(MTPCError, match="its recipe differs"):
        Trainer(target, conversations, dataclasses.replace(recipe, beta=0.5), resume=state)
    with pytest.raises(MTPCError, match="its updates differs"):
        Trainer(target, conversations[:10], recipe, resume=state)


def test_it_starts_from_the_targets_last_layer_or_from_a_given_one(
    target: FrozenTarget, conversations: list[Conversation]
) -> None:
    own = Trainer(target, conversations, RECIPE).layer
    last = target.model.model.layers[-1]
    assert torch.equal(own.block.mlp.up_proj.weight, last.mlp.up_proj.weight)
    assert own.block.mlp.up_proj.weight.data_ptr() != last.mlp.up_proj.weight.data_ptr()
    given = make_layer(target.model)
    started = Trainer(target, conversations, RECIPE, start=given).layer
    assert all(torch.equal(a, b) for a, b in zip(given.parameters(), started.parameters(), strict=True))


def test_micro_batches_are_only_a_matter_of_memory(target: FrozenTarget, conversations: list[Conversation]) -> None:
    losses = []
    for micro_batch in (1, 8):
        trainer = Trainer(target, conversations, dataclasses.replace(RECIPE, epochs=1, micro_batch=micro_batch))
        trainer.run(lambda update, losses: None)
        losses.append(torch.tensor(trainer.losses))
    torch.testing.assert_close(*losses, atol=2e-2, rtol=1e-2)  # autocast rounds to bfloat16


def test_the_rate_rises_then_follows_a_cosine() -> None:
    config = TrainConfig(learning_rate=1.0, warmup=0.1)
    rates = [config.rate(update, 100) for update in range(100)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10:] == pytest.approx([0.5 * (1 + math.cos(math.pi * i / 90)) for i in range(90)])


def test_the_papers_recipe_is_the_default() -> None:
    config = TrainConfig()
    found = (config.steps, config.beta, config.epochs, config.batch, config.learning_rate, config.warmup)
    assert found == (3, 0.6, 3, 64, 5e-5, 0.05)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"beta": 0.0}, "beta must be in"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"context": 4}, "context must be at least 5"),
        ({"attention": "flash"}, "attention is 'served' or 'paper', not 'flash'"),
        ({"loss": "mse"}, "loss is 'ce' or 'kl' or 'lk', not 'mse'"),
        ({"learn_from": "questions"}, "learn_from is 'answers' or 'all', not 'questions'"),
        ({"head_rows": -1}, "head_rows must be 0"),
        ({"optimizer": "sgd"}, "optimizer is 'adamw' or 'muon', not 'sgd'"),
    ],
)
def test_a_wrong_recipe_is_refused(values: dict, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        TrainConfig(**values)


def test_nothing_to_train_on(target: FrozenTarget, conversations: list[Conversation]) -> None:
    short = [dataclasses.replace(each, tokens=each.tokens[:6]) for each in conversations]
    with pytest.raises(MTPCError, match="no conversation has an answer"):
        Trainer(target, short, RECIPE)
