"""What `benchmarks/two_versions.py` makes of its measurements, and of what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.two_versions import HERE, Found, Pair, commit_at, make_table, out_of
from mtpc.errors import MTPCError
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.servers.draft_counters import NO_DRAFTS
from mtpc.lab.servers.engines import find_engine


def measured(tokens: int, seconds: float, text: str = "a") -> Measurement:
    return Measurement(1, tokens, seconds, 1.0, 0.1, 0.1, NO_DRAFTS, float("nan"), (text,))


def test_pairs_and_best_rounds() -> None:
    first = [Pair(measured(100, 1.0), measured(100, 0.5)), Pair(measured(100, 2.0), measured(100, 2.0))]
    second = [Pair(measured(50, 1.0), measured(50, 1.0)), Pair(measured(50, 1.0), measured(50, 0.8, "b"))]
    found = Found(0.0, 1, [first, second])
    assert found.ratios() == [2.0, 1.0, 1.0, 1.25]
    assert found.best() == pytest.approx((150 / 2.0, 150 / 1.3))
    row = dict(zip((table := make_table([found])).columns, table.rows[0], strict=True))
    assert (row["ratio of the best"], row["median of pairs"], row["same text"]) == ("1.54", "1.12", "3 of 4")


def test_a_server_has_the_plugins_of_its_checkout(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "mtpc").mkdir(parents=True)
    ours = find_engine("vllm")
    theirs = out_of(tmp_path, ours).environment()
    assert theirs == ours.environment() | {"PYTHONPATH": str(tmp_path / "plugins")}
    assert out_of(HERE, ours).environment()["PYTHONPATH"] == str(HERE / "plugins")
    assert commit_at(tmp_path) == "unknown"


def test_another_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"is no checkout of this repository: it holds no plugins/mtpc\.$"):
        out_of(tmp_path, find_engine("vllm"))
