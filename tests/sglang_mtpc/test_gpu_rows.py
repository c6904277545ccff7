"""The cards' rows for SGLang: SGLang takes the arguments that they start it with, and some run in miniature."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mtpc.methods import method_of
from tests.engine_sglang.server import ARGUMENTS, drafting
from tests.gpu import __main__ as runner
from tests.gpu.cards import ON_SGLANG
from tests.gpu.on_sglang import ROWS
from tests.gpu.row import Held
from tests.sglang_mtpc.resolving import resolved


def test_every_case_is_a_row() -> None:
    assert set(ROWS) == set(ON_SGLANG)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("name", ROWS)
def test_the_arguments_of_a_row(name: str, tmp_path: Path) -> None:
    case = ROWS[name](tmp_path)
    tokens = () if case.token_map is None else ("--speculative-token-map", case.token_map)
    arguments = (*ARGUMENTS, *drafting(case.models.drafter, *case.drafts, *tokens, *case.arguments))
    drafter = method_of(case.models.drafter)
    found = resolved(case.models.target, *arguments, algorithm=drafter.algorithm)
    assert found.speculative_num_steps == case.models.drafts
    assert (found.speculative_eagle_topk > 1) == name.endswith("tree")
    assert not found.disable_overlap_schedule


@pytest.mark.engine
@pytest.mark.thorough
def test_cards_in_miniature(tmp_path: Path) -> None:
    """The rows of this environment; the others are in `tests.gpu.test_cards`."""
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    runner.main(["load", "core", "sglang", "--rows", "sglang/*", "--device", "cpu", *folders])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    failed = {name: row["found"] for name, row in results.items() if row["held"] == Held.NO}
    assert not failed
    held = {name for name, row in results.items() if row["held"] == Held.YES}
    assert held == {
        "sglang/imports", "sglang/doctor", "sglang/answer", "sglang/mechanisms", "sglang/mtpc-tree",
    }  # fmt: skip
