"""Ranks that would draft with other files than the first one are refused, each by name."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import multiprocessing

from mtpc.errors import MTPCError
from mtpc.serving import ranks as alike
from mtpc.serving.ranks import (
    MISSING,
    PACKAGE,
    SAMPLE_BYTES,
    SAMPLES,
    check_equal,
    check_ranks,
    digest,
    drafter_fingerprints,
    of_first_rank,
)
from tests.support.random_fastmtp import make_vocabulary

WEIGHTS = "model.safetensors"
ADAPTERS = ("adapter_config.json", "adapter_model.safetensors")
FILES = ("config.json", WEIGHTS, "copying.json", *ADAPTERS, "token_counts.safetensors")


def drafter(folder: Path, weights: bytes = b"weights") -> Path:
    """What a rank finds."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / WEIGHTS).write_bytes(weights)
    return folder


def test_whatever_changes_drafts_is_said(tmp_path: Path) -> None:
    folder = drafter(tmp_path / "drafter")
    fingerprints = [drafter_fingerprints(folder, {})]
    assert fingerprints[0]["copying.json of the drafter"] == MISSING
    for name in FILES:
        (folder / name).write_text("other")
        fingerprints.append(drafter_fingerprints(folder, {}))
    make_vocabulary(folder / "vocabulary.json", 258)
    fingerprints.append(drafter_fingerprints(folder, {}))
    fingerprints.append(drafter_fingerprints(folder, {"vocabulary": str(make_vocabulary(tmp_path / "own.json", 258))}))
    assert all(one != other for i, one in enumerate(fingerprints) for other in fingerprints[:i])
    assert drafter_fingerprints(folder, {"language": "none"}) == fingerprints[len(FILES)]
    assert drafter_fingerprints(folder.rename(tmp_path / "moved"), {"language": "none"}) == fingerprints[len(FILES)]


def test_large_files_are_read_in_pieces(tmp_path: Path) -> None:
    file, step = tmp_path / WEIGHTS, 3 * SAMPLE_BYTES
    with file.open("wb") as stream:
        stream.truncate(step * SAMPLES)
    before = digest(file)
    for place, seen in ((0, True), (step * (SAMPLES - 1), True), (step - 1, False)):
        with file.open("rb+") as stream:
            stream.seek(place)
            stream.write(b"1")
        assert (digest(file) != before) == seen, place
        before = digest(file)
    os.truncate(file, step * SAMPLES - 1)
    assert digest(file) != before


def test_ranks_that_differ_are_named() -> None:
    own = {PACKAGE: "1", "/d/config.json": "a", f"/d/{WEIGHTS}": "b"}
    check_equal([own, own, own])
    with pytest.raises(MTPCError, match=r"mtpc-plugins is 1 on rank 0, but 2 on rank 1, 3 on rank 3; install the same"):
        check_equal([own, {**own, PACKAGE: "2"}, own, {**own, PACKAGE: "3"}])
    with pytest.raises(MTPCError, match=f"/d/{WEIGHTS} is b on rank 0, but {MISSING} on rank 2;"):
        check_equal([own, own, {**own, f"/d/{WEIGHTS}": MISSING}])
    with pytest.raises(MTPCError, match=f"/d/vocabulary.json is {MISSING} on rank 0, but v on rank 1;"):
        check_equal([own, {**own, "/d/vocabulary.json": "v"}])


def speak(rank: int, folder: Path, silent: bool) -> None:
    """One of two ranks, each with a working directory: it checks twice, and writes the messages to a file."""
    os.chdir(folder / str(rank))
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    alike.TIMEOUT = timedelta(seconds=2)
    reports = [] if silent else [str(of_first_rank(dist.group.WORLD, (rank + 0.1, 2.5)))]
    for name in ("same", "drafter") if not (silent and rank) else ():
        try:
            check_ranks(dist.group.WORLD, Path(name), {})
            reports.append("")
        except MTPCError as error:
            reports.append(str(error))
            break
    Path("reports").write_text("\n".join(reports))


def reports_of_ranks(folder: Path, silent: bool) -> list[list[str]]:
    """The messages of both ranks."""
    for rank in range(2):
        (folder / str(rank)).mkdir()
        drafter(folder / str(rank) / "same")
        drafter(folder / str(rank) / "drafter", bytes(rank))
    multiprocessing.start_processes(speak, (folder, silent), nprocs=2, start_method="fork")
    return [(folder / str(rank) / "reports").read_text().split("\n") for rank in range(2)]


def test_all_ranks_are_told(tmp_path: Path) -> None:
    first, second = reports_of_ranks(tmp_path, silent=False)
    assert first == second
    assert first[0] == "(0.1, 2.5)"
    assert not first[1] and f"{WEIGHTS} of the drafter is" in first[2]


def test_a_rank_that_says_nothing_ends_the_others(tmp_path: Path) -> None:
    first, _ = reports_of_ranks(tmp_path, silent=True)
    assert first[0].startswith("not all 2 tensor-parallel ranks reported their drafter files in time")
