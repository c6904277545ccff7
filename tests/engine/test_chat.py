"""The chat model and the FastMTP drafter that ships, through `vllm serve`: the same answers in fewer steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpc.distill.template import ChatTemplate
from mtpc.targets.smollm2 import make_smollm2
from tests.engine.conftest import WEIGHTS
from tests.engine.exact import Reference
from tests.engine.server import Server, speculative_config, tokens

pytestmark = pytest.mark.engine
PROMPTS = WEIGHTS.parent / "benchmarks" / "chat_prompts.jsonl"
EACH, LENGTH, DRAFTS = 2, 40, 3
ACCEPTANCE_LENGTH = 1.6  # of ten answers' beginnings; weights/README.md has the figures of many


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct, out of its package."""
    folder = tmp_path_factory.mktemp("chat") / "smollm2"
    make_smollm2(folder)
    return folder


@pytest.fixture(scope="module")
def server(target: Path) -> Iterator[Server]:
    """With the draft vocabularies that the drafter brings."""
    drafting = speculative_config(WEIGHTS / "smollm2-fastmtp", DRAFTS)
    with Server(target, target.with_name("log"), "--max-num-seqs", "8", *drafting) as server:
        yield server


def test_answers_in_every_language(target: Path, server: Server) -> None:
    template, exact = ChatTemplate(target), Reference(target)
    questions = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    kinds = sorted({question["kind"] for question in questions})
    asked = [q["user"] for kind in kinds for q in [q for q in questions if q["kind"] == kind][:EACH]]
    prompts = [template.question(user) for user in asked]
    expected = [exact.greedy(prompt, LENGTH) for prompt in prompts]
    alone = [server.complete(prompt, max_tokens=LENGTH, ignore_eos=True) for prompt in prompts[:EACH]]
    together = server.complete_all(prompts, 5, max_tokens=LENGTH, ignore_eos=True)
    assert [tokens(answer)[0] for answer in (*alone, *together)] == [*expected[:EACH], *expected]
    drafts, accepted = (server.metric(f"vllm:spec_decode_num_{what}_total") for what in ("drafts", "accepted_tokens"))
    assert 1 + accepted / drafts > ACCEPTANCE_LENGTH
