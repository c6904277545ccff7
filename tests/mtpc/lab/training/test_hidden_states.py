"""The target's states on disk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training import hidden_states
from mtpc.lab.training.hidden_states import HiddenStateCache
from tests.support.tiny_models import SIZE, VOCAB, make_target

TEXTS = [tuple(range(1, length)) for length in (9, 5, 12)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return made(tmp_path_factory.mktemp("target"), 0)


def made(folder: Path, seed: int) -> FrozenTarget:
    make_target("llama", seed).save_pretrained(folder)
    return FrozenTarget(folder)


def test_they_are_the_targets_own_whatever_they_were_padded_with(target: FrozenTarget, tmp_path: Path) -> None:
    for _ in range(2):  # computed, then read
        for text, found in zip(TEXTS, HiddenStateCache(tmp_path, target).load_or_compute(TEXTS), strict=True):
            expected = target.hidden(torch.tensor([text]))[0]
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, atol=0.02, rtol=0.01)  # they are kept in bfloat16


def test_of_another_target_or_text_they_are_others(target: FrozenTarget, tmp_path: Path) -> None:
    first = HiddenStateCache(tmp_path / "states", target).load_or_compute(TEXTS[:1])[0]
    other = HiddenStateCache(tmp_path / "states", made(tmp_path / "other", 1)).load_or_compute(TEXTS[:1])[0]
    assert not torch.allclose(first, other, atol=0.1)
    changed = HiddenStateCache(tmp_path / "states", target).load_or_compute([(VOCAB - 1, *TEXTS[0][1:])])[0]
    assert not torch.allclose(first, changed, atol=0.1)
    assert len(list((tmp_path / "states").rglob("*.safetensors"))) == 3


def test_two_trainings_compute_the_same_text_at_once(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first has written its file, but not yet put it in its place."""

    def overtaken(tensors: dict[str, torch.Tensor], path: Path) -> None:
        monkeypatch.setattr(hidden_states, "save_file", save_file)
        save_file(tensors, path)
        HiddenStateCache(tmp_path, target).load_or_compute(TEXTS[:1])

    monkeypatch.setattr(hidden_states, "save_file", overtaken)
    (computed,) = HiddenStateCache(tmp_path, target).load_or_compute(TEXTS[:1])
    assert torch.equal(HiddenStateCache(tmp_path, target).load_or_compute(TEXTS[:1])[0], computed)
    assert [file.suffix for file in tmp_path.rglob("*.*")] == [".safetensors"]


@pytest.mark.parametrize("content", [b"", b"[]", torch.zeros(2, SIZE), torch.zeros(8, SIZE).to(torch.int64)], ids=str)
def test_a_file_of_something_else_is_said(target: FrozenTarget, tmp_path: Path, content: bytes | torch.Tensor) -> None:
    kept = HiddenStateCache(tmp_path, target)
    kept.load_or_compute(TEXTS)
    files = {len(load_file(file)["states"]): file for file in tmp_path.rglob("*.safetensors")}
    if isinstance(content, bytes):
        files[8].write_bytes(content)
    else:
        save_file({"states": content}, files[8])
    with pytest.raises(MTPCError, match=rf"{files[8].name} does not hold the hidden states of its text"):
        kept.load_or_compute(TEXTS)


def test_their_size_is_told_before_they_are_stored(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the texts that are missing, in bytes of two for each hidden dimension; without the space none is stored."""
    tokens, free = 1000 * sum(map(len, TEXTS)), 2 * SIZE * 1000 * sum(map(len, TEXTS))
    long = [tuple(number % VOCAB for number in range(1000 * len(text))) for text in TEXTS]
    monkeypatch.setattr(hidden_states.shutil, "disk_usage", lambda folder: Free(free))
    kept = HiddenStateCache(tmp_path / "a" / "b", target)
    expected = f"the hidden states of {tokens:,} tokens take {free / 1e9:,.3f} GB in {tmp_path / 'a' / 'b'}, "
    assert kept.plan(long) == f"{expected}of {free / 1e9:,.3f} GB that are free"
    monkeypatch.setattr(hidden_states.shutil, "disk_usage", lambda folder: Free(free - 1))
    with pytest.raises(MTPCError, match=r"GB free; choose another folder with --states, or train without"):
        kept.plan(long)
    assert not (tmp_path / "a").exists()
    kept.load_or_compute(TEXTS[:2])
    assert kept.plan(TEXTS).startswith(f"the hidden states of {len(TEXTS[2])} tokens take")


class Free(NamedTuple):
    """What is free on a disk."""

    free: int
