"""A MiMo target through SGLang, with the MTP layer of its own checkpoint after `mtpc convert fastmtp`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.fastmtp import Loop
from tests.engine.prompts import prompts
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.server import SGLangServer, drafting, texts
from tests.support.random_mimo import make_mimo

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
DRAFTS, LENGTH = 3, 24


def test_drafts_and_text_are_those_of_the_plain_loop(tmp_path: Path) -> None:
    mimo, drafts = make_mimo(tmp_path), tmp_path / "drafts"
    loop, exact = Loop(mimo.plain, mimo.drafter), JointReference(mimo.plain)
    asked = [prompt[:60] for prompt in prompts(20)]
    with SGLangServer(
        mimo.target,
        tmp_path / "log",
        "--trust-remote-code",
        *drafting(mimo.drafter),
        path=[SUPPORT / "recorded_drafts"],
        variables={"RECORDED_DRAFTS": str(drafts)},
    ) as server:
        answers = server.generate_all(asked, 4, max_new_tokens=LENGTH, ignore_eos=True)
    assert texts(answers) == [exact.greedy(list(prompt.encode()), LENGTH) for prompt in asked]
    recorded = [json.loads(line) for line in drafts.read_text().splitlines()]
    steps = 0
    for prompt, answer in zip(asked, answers, strict=True):
        found = [step[name] for step in recorded if (name := answer["meta_info"]["id"]) in step]
        expected = loop.drafts(list(prompt.encode()), LENGTH, DRAFTS)
        assert found[: len(expected)] == expected
        steps += len(expected)
    assert steps > 200
