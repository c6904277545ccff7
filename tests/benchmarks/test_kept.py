"""Results on disk: which changes of a checkpoint make them invalid."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kept import Kept, digest
from mtpc.errors import MTPCError


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "pytorch_model.bin"])
def test_other_weights_have_another_digest(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"one")
    before = digest(tmp_path)
    assert digest(tmp_path) == before
    (tmp_path / name).write_bytes(b"two")
    assert digest(tmp_path) != before


def test_a_folder_without_a_configuration_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"must be the folder of a checkpoint, but it has no config\.json"):
        digest(tmp_path)


def test_a_result_is_kept_for_its_inputs_and_commit(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.write("one", {"tokens": 4}, [1, 2])
    assert kept.read("one", {"tokens": 4}) == [1, 2]
    assert kept.read("one", {"tokens": 5}) is None
    kept.commit = "another"
    assert kept.read("one", {"tokens": 4}) is None
