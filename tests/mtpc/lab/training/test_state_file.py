"""States on disk: whole or not at all, and one sentence for everything that is not the state of this training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.training.state_file import StateFile, first_difference

IDENTITY: dict[str, Any] = {"recipe": {"beta": 0.6, "batch": {"texts": 4}}, "data": {"sha256": "ab"}, "drafters": {}}


def test_round_trip_and_no_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "new" / "state", IDENTITY)
    assert file.read() is None
    file.write({"update": 3, "weights": torch.ones(2)})
    state = file.read()
    assert state is not None
    assert state["update"] == 3
    assert torch.equal(state["weights"], torch.ones(2))


def test_a_state_that_is_cut_off_on_the_way_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "state", IDENTITY)
    file.write({"update": 1})

    def cut_off(value: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", cut_off)
    with pytest.raises(OSError, match="no space"):
        file.write({"update": 2})
    assert file.read() == {"update": 1}


def test_two_trainings_that_were_given_the_same_file_write_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first has written its state, but not yet put it in its place."""
    file, save = StateFile(tmp_path / "state", IDENTITY), torch.save

    def overtaken(value: object, path: Path) -> None:
        save(value, path)
        monkeypatch.setattr(torch, "save", save)
        StateFile(tmp_path / "state", IDENTITY).write({"update": 2})

    monkeypatch.setattr(torch, "save", overtaken)
    file.write({"update": 1})
    assert file.read() == {"update": 1}


class Foreign:
    """No plain value: `weights_only` refuses it."""


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b""), "is damaged or is not a training state"),
        (lambda path: path.write_bytes(b"\x80\x04 not a pickle at all"), "is damaged or is not a training state"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "is damaged or is not a training state"),
        (lambda path: path.write_text("{}"), "is damaged or is not a training state"),
        (lambda path: (path.unlink(), path.mkdir()), "is damaged or is not a training state"),
        (lambda path: torch.save(Foreign(), path), "is damaged or is not a training state"),
        (lambda path: torch.save({"update": 3}, path), "is not a training state of this release"),
        (lambda path: torch.save([1, 2], path), "is not a training state of this release"),
    ],
    ids=["empty", "bytes", "cut off", "text", "a folder", "an object", "an older release", "a list"],
)
def test_what_is_no_state_gets_one_sentence(tmp_path: Path, write: Any, message: str) -> None:
    file = StateFile(tmp_path / "state", IDENTITY)
    file.write({"update": 1})
    write(file.path)
    with pytest.raises(MTPCError) as caught:
        file.read()
    sentence = str(caught.value)
    assert message in sentence
    assert str(file.path) in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"recipe": {"beta": 0.5, "batch": {"texts": 4}}}, "its recipe.beta is 0.6, but this training has 0.5"),
        ({"recipe": {"beta": 0.6, "batch": {"texts": 3}}}, "its recipe.batch.texts is 4, but this training has 3"),
        ({"data": {"sha256": "cd"}}, "its data.sha256 is 'ab', but this training has 'cd'"),
        ({"drafters": {"mine": {"window": 8}}}, "only this training has drafters.mine"),
        ({"recipe": {"beta": 0.6}}, "only the saved one has recipe.batch"),
    ],
)
def test_another_training_is_told_by_what_differs(tmp_path: Path, change: dict[str, Any], difference: str) -> None:
    StateFile(tmp_path / "state", IDENTITY).write({"update": 1})
    with pytest.raises(MTPCError) as caught:
        StateFile(tmp_path / "state", IDENTITY | change).read()
    assert f"belongs to another training: {difference}" in str(caught.value)


def test_equal_identities_do_not_differ() -> None:
    assert first_difference(IDENTITY, dict(reversed(IDENTITY.items()))) is None


def test_a_state_without_its_identity_gets_one_sentence(tmp_path: Path) -> None:
    for whole in ({}, {"identity": IDENTITY}, {"identity": [], "state": {}}, {"identity": IDENTITY, "state": [1]}):
        torch.save({"format": "mtpc training 1", **whole}, tmp_path / "state")
        with pytest.raises(MTPCError, match="is not a training state of this release; name another file"):
            StateFile(tmp_path / "state", IDENTITY).read()
