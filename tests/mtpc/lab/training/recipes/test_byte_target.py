"""The byte-level target's training: its learning rate, its losses, its updates, and how it resumes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mtpc.errors import MTPCError
from mtpc.lab.text.corpus import Corpus, StoredDocument
from mtpc.lab.training.recipes import byte_target as byte_llama
from mtpc.lab.training.recipes.byte_target import (
    FutureHeads,
    build_byte_llama,
    heldout_loss,
    train_byte_target,
)
from mtpc.lab.training.settings import ByteTargetConfig

CONFIG = ByteTargetConfig(
    hidden_size=64, layers=1, heads=1, kv_heads=1, mlp_size=32, context=96, updates=6, tokens_per_update=192,
    warmup=2, future_bytes=4,
)  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Two kinds of text, a little of each held out."""
    generator = np.random.default_rng(0)
    documents = []
    for split, length in (("train", 2000), ("heldout", 400)):
        generator.integers(0, 256, length).astype(np.uint16).tofile(tmp_path / f"{split}.bin")
    for index, kind in enumerate(("prose", "code")):
        documents.append(StoredDocument(kind, kind, "public domain", "heldout", 200 * index, 200))
    (tmp_path / "documents.json").write_text(json.dumps([dataclasses.asdict(document) for document in documents]))
    return Corpus(tmp_path)


def test_the_rate_rises_stays_and_falls_to_a_fiftieth() -> None:
    schedule = ByteTargetConfig(updates=100, warmup=10, learning_rate=1.0).schedule
    rates = [schedule.rate(update) for update in (0, 9, 30, 50, 75, 99)]
    assert rates == pytest.approx([0.1, 1.0, 1.0, 1.0, 0.51, 1 - 0.98 * 49 / 50])


def test_the_auxiliary_loss_position_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every fourth position from a random one on, the bytes 2..n ahead, each by a power of the discount."""
    heads, length = FutureHeads(dataclasses.replace(CONFIG, future_bytes=5, future_discount=0.5)), 10
    torch.nn.init.normal_(heads.weight)
    hidden, tokens = torch.randn(2, length, 64), torch.randint(256, (2, length + 5))
    for start in range(4):
        monkeypatch.setattr(torch, "randint", lambda most, shape, start=start: torch.tensor(start))
        positions = range(start, length, 4)
        expected = 0.0
        for ahead in range(2, 6):
            losses = [
                -(heads.weight.detach()[ahead - 2] @ hidden[row, at]).log_softmax(-1)[tokens[row, at + ahead]]
                for row in range(2)
                for at in positions
            ]
            expected += 0.5 ** (ahead - 1) * float(sum(losses)) / len(losses)
        assert heads.loss(hidden, tokens).item() == pytest.approx(expected, rel=1e-4)


def test_the_held_out_loss_is_that_of_the_next_byte_after_the_first_64() -> None:
    model = build_byte_llama(CONFIG)
    text = np.random.default_rng(0).integers(0, 256, 300).astype(np.uint16)
    total = 0.0
    for start in (0, 101, 203):  # of 96 bytes, evenly spaced, so that one byte is left after the last
        window = torch.from_numpy(text[start : start + 96].astype(np.int64))
        with torch.no_grad():
            log_p = model(input_ids=window[None]).logits[0].log_softmax(-1)
        total -= float(log_p[range(64, 95), window[65:]].mean())
    assert heldout_loss(model, text, 96, windows=3) == pytest.approx(total / 3, rel=2e-3)  # it computes in bfloat16
    assert model.training


def test_an_update_reads_longer_windows_towards_the_end_and_clips_what_it_learns(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, norms, rates, clip = [], [], [], torch.nn.utils.clip_grad_norm_
    sample, step = byte_llama.sample_batch, torch.optim.AdamW.step
    monkeypatch.setattr(byte_llama, "sample_batch", lambda t, *sizes: read.append(sizes[:2]) or sample(t, *sizes))

    def clipped(parameters: Iterable[torch.Tensor], most: float) -> torch.Tensor:
        parameters = list(parameters)
        found = clip(parameters, most)
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None)))
        return found

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: rates.append(self.param_groups[0]["lr"]) or step(self))
    train_byte_target(corpus, tmp_path / "out", dataclasses.replace(CONFIG, long_context_from=0.5, future_weight=100.0))
    assert read == [(4, 52), (4, 52), (4, 52), (2, 100), (2, 100), (2, 100)]  # 4 bytes more than is read
    assert norms == [pytest.approx(1.0, abs=1e-3)] * 6
    assert rates == [pytest.approx(CONFIG.schedule.rate(update)) for update in range(6)]


def test_a_training_is_taken_up_and_one_of_another_recipe_is_not(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_llama.ByteRecipe, "save_every", 3)
    state = tmp_path / "training.state"
    train_byte_target(corpus, tmp_path / "whole", CONFIG, state)
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    train_byte_target(corpus, tmp_path / "again", CONFIG, state)  # nothing is left to do
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all((whole[name] == again[name]).all() for name in whole)
    history = json.loads((tmp_path / "again" / "provenance.json").read_text())["history"]
    assert [entry["update"] for entry in history] == [3, 6]
    with pytest.raises(MTPCError, match=r"training\.state belongs to another training: its recipe\.seed is 0"):
        train_byte_target(corpus, tmp_path / "other", dataclasses.replace(CONFIG, seed=1), state)
    assert not (tmp_path / "other").exists()


def test_what_a_training_is_not_taken_up_with(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number of updates is another schedule of the rate; widened is from a certain model."""
    monkeypatch.setattr(byte_llama.ByteRecipe, "save_every", 3)
    state = tmp_path / "training.state"
    wide = dataclasses.replace(CONFIG, mlp_size=48)
    for name, seed in (("one", 0), ("other", 1)):
        train_byte_target(corpus, tmp_path / name, dataclasses.replace(CONFIG, seed=seed))
    train_byte_target(corpus, tmp_path / "wide", wide, state, widen=tmp_path / "one")
    for config, widen, difference in (
        (dataclasses.replace(wide, updates=9), "one", r"its recipe\.updates is 6, but this training has 9"),
        (dataclasses.replace(wide, learning_rate=1.0), "one", r"its recipe\.learning_rate is"),
        (wide, "other", r"its data\.widened is"),
    ):
        with pytest.raises(MTPCError, match=difference):
            train_byte_target(corpus, tmp_path / "new", config, state, widen=tmp_path / widen)
    saved = torch.load(state, weights_only=True)
    learner = saved["state"]["learners"]["byte target"]
    other = {name: torch.zeros(1) for name in learner["weights"]}
    of_learner = [{**learner, **one} for one in ({"weights": {}}, {"weights": other}, {"history": ""})]
    for changed in ({"update": -1}, *({"learners": {"byte target": one}} for one in of_learner)):
        torch.save({**saved, "state": {**saved["state"], **changed}}, state)
        with pytest.raises(MTPCError, match=f"^{state} "):
            train_byte_target(corpus, tmp_path / "new", wide, state, widen=tmp_path / "one")
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_not_finite_ends_in_a_sentence(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="try a smaller --learning-rate"):
        train_byte_target(corpus, tmp_path / "out", dataclasses.replace(CONFIG, future_weight=float("nan")))
