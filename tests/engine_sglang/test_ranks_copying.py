"""Two tensor-parallel ranks of SGLang that copy: the same text, and drafts of the same lengths on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import SYNCHRONOUS
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.server import drafting
from tests.engine_sglang.test_ranks import ASKED, LENGTH, serving
from tests.support.on_ranks import METHODS
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


def test_ranks_copy_the_same(tmp_path: Path) -> None:
    """How many passes the layer makes, and how long a draft is, goes by what the first rank has timed."""
    models, _ = METHODS["fastmtp"](tmp_path)
    steps, copies = str(models.drafts + 4), (SYNCHRONOUS, "--speculative-token-map", "?copy=true")
    arguments = drafting(models.drafter, "--speculative-num-steps", steps, *copies)
    with serving(models.target, tmp_path, *arguments) as server:
        exact = JointReference(models.target)
        for prompt in prompts(ASKED):
            repeated = prompt + prompt[:LENGTH]
            answer = server.generate(repeated, max_new_tokens=2 * LENGTH, ignore_eos=True)
            assert answer["output_ids"] == exact.greedy(list(repeated.encode()), 2 * LENGTH)
        lengths = {
            len(draft) for line in (tmp_path / "drafts").read_text().splitlines() for draft in json.loads(line).values()
        }
        assert max(lengths) > models.drafts > min(lengths)
        sampled = {"max_new_tokens": LENGTH, "ignore_eos": True, "temperature": 0.3}
        assert_ranks_draft_the_same(tmp_path, lambda: [server.generate(one, **sampled) for one in prompts(ASKED)])
