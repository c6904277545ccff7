"""Two tensor-parallel ranks that copy: the same text, and drafts of the same lengths on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.exact import Reference
from tests.engine.prompts import prompts
from tests.engine.ranks import serving
from tests.engine.server import tokens
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
LENGTH, ASKED = 24, 4


def test_ranks_copy_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Draft lengths depend on the time of a step; each rank measures it, and all use the first rank's."""
    with serving("hybrid", "", tmp_path, request, copied=4) as served:
        exact, server, drafts = Reference(served.models.target), served.server, served.models.drafts
        asked = [prompt + prompt[:LENGTH] for prompt in prompts(ASKED)]
        answers = server.complete(asked, max_tokens=2 * LENGTH, ignore_eos=True)
        assert tokens(answers) == [exact.greedy(list(prompt.encode()), 2 * LENGTH) for prompt in asked]
        steps = [json.loads(line) for line in (tmp_path / "drafts").read_text().splitlines()]
        lengths = {len(draft) for rows in steps for draft in rows}
        assert max(lengths) > drafts > min(lengths)
        sampled = {"max_tokens": LENGTH, "ignore_eos": True, "temperature": 0.3}
        assert_ranks_draft_the_same(tmp_path, lambda: [server.complete(prompt, **sampled) for prompt in asked])
