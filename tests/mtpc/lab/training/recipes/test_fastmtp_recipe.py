"""The recipe of an MTP layer: it learns, updates equal a reference implementation's, kept states the target's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.recipes.fastmtp_loss import step_losses, step_weights
from mtpc.lab.training.recipes.fastmtp_recipe import FastMTPRecipe
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import FastMTPSettings
from mtpc.lab.training.trainer import Trainer
from mtpc.methods.drafter import load_drafter, save_drafter
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import SIZE, VOCAB, make_fastmtp, make_mtpc, make_target

RECIPE = FastMTPSettings(num_drafts=2, epochs=4, batch=8, learning_rate=3e-3, micro_batch=4)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


@pytest.fixture(scope="module")
def conversations(target: FrozenTarget) -> list[Conversation]:
    return make_conversations(target.model, 40)


def trained(
    target: FrozenTarget, conversations: list[Conversation], settings: FastMTPSettings, **options: Any
) -> Trainer:
    trainer = Trainer(FastMTPRecipe(target, conversations, settings, **options))
    trainer.run()
    return trainer


def losses_of(trainer: Trainer) -> list[list[float]]:
    """Of the one layer, by update."""
    return trainer.learners[0].losses


VARIANTS = [
    {"loss": "ce"},
    {"loss": "kl"},
    {"optimizer": "muon"},
    {"head_rows": 8},
    {"learn_from": "all"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_both_steps_learn(target: FrozenTarget, conversations: list[Conversation], variant: dict[str, Any]) -> None:
    settings = dataclasses.replace(RECIPE, epochs=12, learning_rate=1e-2, **variant)
    trainer = trained(target, conversations, settings)
    losses = losses_of(trainer)
    first, last = (torch.tensor(losses[part]).mean(0) for part in (slice(5), slice(-5, None)))
    assert (last < 0.9 * first).all()
    assert len(losses) == trainer.updates == 60


def test_kept_states_are_those_that_the_target_would_compute(
    target: FrozenTarget, conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fresh = trained(target, conversations, RECIPE)
    reads, hidden = [], target.hidden
    monkeypatch.setattr(target, "hidden", lambda tokens: reads.append(len(tokens)) or hidden(tokens))
    for _ in range(2):  # the second training finds all of them
        kept = trained(target, conversations, RECIPE, states=HiddenStateCache(tmp_path, target))
        torch.testing.assert_close(losses_of(kept), losses_of(fresh), atol=1e-2, rtol=1e-2)
        assert sum(reads) == len({each.tokens[: RECIPE.context] for each in conversations})


def test_every_conversation_is_learnt_from_once_in_an_epoch(
    target: FrozenTarget, conversations: list[Conversation]
) -> None:
    """In parts of the size that is asked for; the last one of a batch may be smaller."""
    recipe = FastMTPRecipe(target, conversations, dataclasses.replace(RECIPE, epochs=1, micro_batch=3))
    parts = [[part.tokens for part in recipe.batch(update).micro_batches] for update in range(5)]
    assert [[len(tokens) for tokens in batch] for batch in parts] == [[3, 3, 2]] * 5
    read = sorted(row.tolist() for batch in parts for tokens in batch for row in tokens)
    texts = sorted(list(each.tokens)[: RECIPE.context] for each in conversations)
    assert [row[: len(text)] for row, text in zip(read, texts, strict=True)] == texts


@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_an_update_is_that_of_a_plain_loop(target: FrozenTarget, conversations: list[Conversation], loss: Any) -> None:
    """One conversation at a time, every start for itself: the same gradient, clipped, and one step of AdamW."""
    settings = dataclasses.replace(RECIPE, loss=loss, epochs=1, batch=8, warmup=0.5)
    recipe = FastMTPRecipe(target, conversations, settings)
    layer = recipe.models()["fastmtp"].autoregressive
    assert layer is not None
    head, alpha, total = SharedHead.of(target.model), step_weights(2, settings.beta), 0
    summed = torch.zeros(2)
    for part in recipe.batch(0).micro_batches:
        for tokens, chosen in zip(part.tokens, part.chosen, strict=True):
            for start in chosen.nonzero()[:, 0].tolist():
                text, only = tokens[None, : start + 4], torch.zeros(1, start + 1, dtype=torch.bool)
                only[0, start] = True
                with torch.autocast("cpu", torch.bfloat16):
                    losses = step_losses(layer, head, target.hidden(text), text, only, 2, loss)
                (losses * torch.tensor(alpha)).sum().backward()
                summed += losses.detach()
                total += 1
    assert total == recipe.batch(0).examples
    gradients = [p.grad / total for p in layer.parameters() if p.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    rate, decay = settings.learning_rate / round(0.5 * recipe.schedule.updates), settings.weight_decay
    expected = []
    for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
        clipped = gradient / max(1.0, float(norm))
        kept = parameter.detach() * (1 - rate * decay * (parameter.ndim > 1))
        expected.append(
            kept - rate * clipped / (clipped.abs() + 1e-8)
        )  # the first step of Adam has the size of the rate
    trainer = Trainer(recipe)
    with pytest.raises(StopIteration):
        trainer.run(lambda update, losses: next(iter(())))
    assert losses_of(trainer) == [pytest.approx((summed / total).tolist(), rel=2e-2)]
    for parameter, wanted, gradient in zip(trainer.learners[0].model.parameters(), expected, gradients, strict=True):
        sure = gradient.abs() > 0.2 * gradient.abs().max()  # where autocast's rounding does not turn the sign
        torch.testing.assert_close(parameter[sure], wanted[sure], atol=rate / 100, rtol=0)


def start_of(recipe: FastMTPRecipe) -> Any:
    (drafter,) = recipe.models().values()
    return drafter.autoregressive


def test_a_start_of_another_layer_is_refused(target: FrozenTarget, conversations: list[Conversation]) -> None:
    with pytest.raises(MTPCError, match="the drafter to start from has another layer"):
        FastMTPRecipe(target, conversations, RECIPE, start=make_fastmtp(make_target("qwen2")))
    with pytest.raises(MTPCError, match="the drafter to start from has another layer"):
        FastMTPRecipe(target, conversations, RECIPE, start=make_mtpc("hmm", 4, 2, SIZE, VOCAB))


def test_it_starts_from_the_targets_last_layer_or_from_a_given_one(
    target: FrozenTarget, conversations: list[Conversation]
) -> None:
    own = start_of(FastMTPRecipe(target, conversations, RECIPE))
    last = target.model.model.layers[-1]
    assert torch.equal(own.blocks[0].mlp.up_proj.weight, last.mlp.up_proj.weight)
    assert own.blocks[0].mlp.up_proj.weight.data_ptr() != last.mlp.up_proj.weight.data_ptr()
    given = make_fastmtp(target.model)
    started = start_of(FastMTPRecipe(target, conversations, RECIPE, start=given))
    assert all(torch.equal(a, b) for a, b in zip(given.parameters(), started.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_a_layer_for_a_qwen3_learns_and_is_kept(kind: str, tmp_path: Path) -> None:
    """Behind experts its MLP learns as well, which at first adds nothing."""
    make_target(kind).save_pretrained(tmp_path / "target")
    target = FrozenTarget(tmp_path / "target")
    settings = dataclasses.replace(RECIPE, epochs=12, learning_rate=1e-2)
    recipe = FastMTPRecipe(target, make_conversations(target.model, 40), settings)
    first, last = start_of(recipe).blocks[0], target.model.model.layers[-1]
    copied = {name: last.state_dict().get(name) for name in first.state_dict()}
    new = {name for name, weight in copied.items() if weight is None}
    assert new == ({f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")} if kind == "qwen3_moe" else set())
    assert all(torch.equal(copied[name], weight) for name, weight in first.state_dict().items() if name not in new)
    assert first.mlp.down_proj.weight.any() == (kind == "qwen3")
    trainer = Trainer(recipe)
    trainer.run()
    start, end = (torch.tensor(losses_of(trainer)[part]).mean(0) for part in (slice(5), slice(-5, None)))
    assert (end < 0.9 * start).all()
    drafter = trainer.learners[0].model
    assert all(not torch.equal(weight, drafter.autoregressive.blocks[0].get_parameter(name)) for name, weight in
               first.named_parameters())  # fmt: skip
    save_drafter(tmp_path / "drafter", drafter, {"purpose": "tests"})
    loaded = load_drafter(tmp_path / "drafter", target.facts)
    assert loaded.config.layer == "qwen3"
    for weight, kept in zip(drafter.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(weight.to(torch.bfloat16).float(), kept)


def test_micro_batches_are_only_a_matter_of_memory(target: FrozenTarget, conversations: list[Conversation]) -> None:
    losses = []
    for micro_batch in (1, 8):
        trainer = trained(target, conversations, dataclasses.replace(RECIPE, epochs=1, micro_batch=micro_batch))
        losses.append(torch.tensor(losses_of(trainer)))
    torch.testing.assert_close(*losses, atol=2e-2, rtol=1e-2)  # autocast rounds to bfloat16


def test_the_rate_rises_over_a_share_of_all_updates(target: FrozenTarget, conversations: list[Conversation]) -> None:
    schedule = FastMTPRecipe(target, conversations, dataclasses.replace(RECIPE, epochs=8, warmup=0.1)).schedule
    assert schedule == Schedule(RECIPE.learning_rate, 40, 4, 4, "cosine")


def test_the_papers_recipe_is_the_default() -> None:
    of = FastMTPSettings()
    found = (of.num_drafts, of.beta, of.epochs, of.batch, of.learning_rate, of.warmup)
    assert found == (3, 0.6, 3, 64, 5e-5, 0.05)


def test_a_context_that_holds_no_drafts_is_refused() -> None:
    """All other bounds are those of the options, see `tests/mtpc/lab/cli/test_broken_options.py`."""
    with pytest.raises(MTPCError, match="need a context of at least 5 tokens"):
        FastMTPSettings(num_drafts=3, context=4)


def test_conversations_of_another_target(target: FrozenTarget, conversations: list[Conversation]) -> None:
    foreign = dataclasses.replace(conversations[0], tokens=(*conversations[0].tokens[:-1], target.facts.vocab_size))
    with pytest.raises(MTPCError, match="are of another target"):
        FastMTPRecipe(target, [foreign], RECIPE)


def test_nothing_to_train_on(target: FrozenTarget, conversations: list[Conversation]) -> None:
    short = [dataclasses.replace(each, tokens=each.tokens[:6]) for each in conversations]
    with pytest.raises(MTPCError, match="no conversation has an answer"):
        FastMTPRecipe(target, short, RECIPE)


@pytest.mark.parametrize(("length", "start", "learnt"), [(30, 7, True), (30, 8, False), (10, 7, True), (9, 7, False)])
def test_a_conversation_is_learnt_from_whose_first_drafts_lie_in_text_and_context(
    target: FrozenTarget, length: int, start: int, learnt: bool
) -> None:
    """Of 10 tokens of context: a start at 6 emits token 7 and drafts 8 and 9."""
    settings = dataclasses.replace(RECIPE, context=10)
    conversation = Conversation(0, "chat", "", "", (3,) * length, start, "stop")
    if learnt:
        recipe = FastMTPRecipe(target, [conversation], settings)
        assert recipe.batch(0).examples >= 1
        assert recipe.data()["tokens"] == 10
    else:
        with pytest.raises(MTPCError, match="no conversation has an answer within 10 tokens"):
            FastMTPRecipe(target, [conversation], settings)
