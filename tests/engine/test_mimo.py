"""A MiMo target through `vllm serve`, with the MTP layer of its own checkpoint after `mtpc convert fastmtp`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.conftest import CAPACITY
from tests.engine.exact import Reference
from tests.engine.fastmtp import Loop
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens
from tests.support.random_mimo import make_mimo

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
DRAFTS, LENGTH = 3, 24


def test_drafts_and_text_are_those_of_the_plain_loop(tmp_path: Path) -> None:
    mimo, drafts = make_mimo(tmp_path), tmp_path / "drafts"
    loop, exact = Loop(mimo.plain, mimo.drafter), Reference(mimo.plain)
    read = steps = 0
    with Server(
        mimo.target,
        tmp_path / "log",
        *CAPACITY,
        "--trust-remote-code",  # it brings its configuration class, as the published one does
        *speculative_config(mimo.drafter, DRAFTS),
        path=[SUPPORT / "recorded_drafts"],
        variables={"RECORDED_DRAFTS": str(drafts)},
    ) as server:
        for prompt in prompts(20):
            ids = list(prompt[:60].encode())
            answer = server.complete(prompt[:60], max_tokens=LENGTH, ignore_eos=True)
            assert tokens(answer)[0] == exact.greedy(ids, LENGTH)
            lines = drafts.read_text().splitlines()
            found, read = [json.loads(line)[0] for line in lines[read:]], len(lines)
            expected = loop.drafts(ids, LENGTH, DRAFTS)
            assert found[: len(expected)] == expected
            steps += len(expected)
    assert steps > 200
