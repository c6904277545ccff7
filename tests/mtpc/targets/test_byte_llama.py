"""The byte-level target's training: its schedule, and that it goes on where it was left."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mtpc.data.corpus import Corpus, StoredDocument
from mtpc.errors import MTPCError
from mtpc.targets.byte_llama import ByteTargetConfig, train_byte_target

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


def test_a_training_is_taken_up_and_one_of_another_recipe_is_not(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtpc.targets.byte_llama.SAVE_EVERY", 3)
    state = tmp_path / "training.state"
    train_byte_target(corpus, tmp_path / "whole", CONFIG, state)
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    train_byte_target(corpus, tmp_path / "again", CONFIG, state)  # nothing is left to do
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all((whole[name] == again[name]).all() for name in whole)
    history = json.loads((tmp_path / "again" / "provenance.json").read_text())["history"]
    assert [entry["update"] for entry in history] == [3, 6]
    with pytest.raises(MTPCError, match=r"training\.state belongs to another training: its recipe\.seed is 0, but 1"):
        train_byte_target(corpus, tmp_path / "other", dataclasses.replace(CONFIG, seed=1), state)
    assert not (tmp_path / "other").exists()


def test_what_a_training_is_not_taken_up_with(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number of updates is another schedule of the rate; widened is from a certain model."""
    monkeypatch.setattr("mtpc.targets.byte_llama.SAVE_EVERY", 3)
    state = tmp_path / "training.state"
    wide = dataclasses.replace(CONFIG, mlp_size=48)
    for name, seed in (("one", 0), ("other", 1)):
        train_byte_target(corpus, tmp_path / name, dataclasses.replace(CONFIG, seed=seed))
    train_byte_target(corpus, tmp_path / "wide", wide, state, widen=tmp_path / "one")
    for config, widen, difference in (
        (dataclasses.replace(wide, updates=9), "one", r"its recipe\.updates is 6, but 9"),
        (dataclasses.replace(wide, learning_rate=1.0), "one", r"its recipe\.learning_rate is"),
        (wide, "other", "its widened is"),
    ):
        with pytest.raises(MTPCError, match=difference):
            train_byte_target(corpus, tmp_path / "new", config, state, widen=tmp_path / widen)
    saved = torch.load(state, weights_only=True)
    for key, value in (("update", -1), ("model", {}), ("heads", {"weight": torch.zeros(1)}), ("history", "none")):
        torch.save({**saved, "state": {**saved["state"], key: value}}, state)
        with pytest.raises(MTPCError, match=f"^{state} "):
            train_byte_target(corpus, tmp_path / "new", wide, state, widen=tmp_path / "one")
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_not_finite_ends_in_a_sentence(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="a smaller learning rate may keep it finite"):
        train_byte_target(corpus, tmp_path / "out", dataclasses.replace(CONFIG, future_weight=float("nan")))
