"""The rows of `make test-gpu` for SGLang: what they would start a server with is what SGLang takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpc.families import family_of
from tests.engine_sglang.server import ARGUMENTS, drafting
from tests.gpu.on_sglang import ROWS
from tests.gpu.rows import ON_SGLANG
from tests.sglang_mtpc.resolving import resolved

pytestmark = pytest.mark.usefixtures("loaded")


def test_every_case_is_a_row() -> None:
    assert set(ROWS) == set(ON_SGLANG)


@pytest.mark.parametrize("name", ROWS)
def test_the_arguments_of_a_row(name: str, tmp_path: Path) -> None:
    case = ROWS[name](tmp_path)
    tokens = () if case.token_map is None else ("--speculative-token-map", case.token_map)
    arguments = (*ARGUMENTS, *drafting(case.models.drafter, *case.drafts, *tokens, *case.arguments))
    drafter = family_of(case.models.drafter)
    found = resolved(case.models.target, *arguments, algorithm=drafter.algorithm)
    assert found.speculative_num_steps == case.models.drafts
    assert (found.speculative_eagle_topk > 1) == name.endswith("tree")
    assert not found.disable_overlap_schedule
