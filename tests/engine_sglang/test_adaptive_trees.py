"""Trees that are drafted whole or not at all, as is worth it: the same text, with steps of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.prompts import prompts
from tests.engine_sglang.server import texts
from tests.engine_sglang.test_draft_methods import Case, Tree, fastmtp, gumiho, mtpc, recorded, serving

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
# A tree is worth it by the acceptance rate that is assumed at first, and no more after one that was rejected.
COST = '?step_cost={"plain":[[1,1.0]],"verifying":[[1,1.0],[8,2.1],[12,2.3]],"drafting":[[1,0.0]]}'
LENGTH = 48
CASES: dict[str, Callable[[Path], Case]] = {
    "mtpc": lambda folder: mtpc(folder, tree=Tree(11, 3)),
    "fastmtp": lambda folder: fastmtp(folder, tree=Tree(7, 2)),
    "gumiho": lambda folder: gumiho(folder, tree=Tree(11, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_greedy_texts(name: str, tmp_path: Path) -> None:
    case = CASES[name](tmp_path)._replace(token_map=COST)
    assert case.tree is not None
    with serving(case, tmp_path) as served:
        asked = prompts(8)
        answers = [served.server.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True) for prompt in asked]
        assert texts(answers) == [served.exact.greedy(list(prompt.encode()), LENGTH) for prompt in asked]
        lengths = [len(step) for request in recorded(served, answers) for step in request]
        assert set(lengths) == {0, case.tree.nodes}
        assert min(lengths.count(0), lengths.count(case.tree.nodes)) > 20
        assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) > 0
