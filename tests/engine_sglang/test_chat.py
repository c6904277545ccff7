"""The chat model and the FastMTP drafter that ships, through SGLang: the same answers in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.chat import ACCEPTANCE_LENGTH, DRAFTER, chat_prompts, make_chat_model
from tests.engine.exact import Reference
from tests.engine_sglang.server import SGLangServer, drafting, texts
from tests.support.dashboard import missing

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
EACH, LENGTH = 1, 40
CAPACITY = ("--max-total-tokens", "4096", "--max-running-requests", "8")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is served."""
    return make_chat_model(tmp_path_factory.mktemp("chat") / "smollm2")


@pytest.fixture(scope="module")
def server(target: Path) -> Iterator[SGLangServer]:
    """With the draft vocabularies that the drafter brings."""
    with SGLangServer(target, target.with_name("log"), *CAPACITY, *drafting(DRAFTER)) as server:
        yield server


def test_answers_in_every_language(target: Path, server: SGLangServer) -> None:
    prompts, exact = chat_prompts(target, EACH), Reference(target)
    expected = [exact.greedy(prompt, LENGTH) for prompt in prompts]
    alone = [server.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True) for prompt in prompts[:EACH]]
    together = server.generate_all(prompts, 5, max_new_tokens=LENGTH, ignore_eos=True)
    assert texts([*alone, *together]) == [*expected[:EACH], *expected]
    steps = sum(answer["meta_info"]["spec_verify_ct"] for answer in together)
    assert len(prompts) * LENGTH / steps > ACCEPTANCE_LENGTH
    counted = server.counted()
    for place in range(3):  # as the answers say themselves
        accepted = (
            sum(answer["meta_info"]["spec_correct_drafts_histogram"][place + 1 :]) for answer in (*alone, *together)
        )
        assert counted["position"][str(place)] == sum(accepted)
    assert sum(counted["vocabulary"].values()) == sum(counted["position"].values())
    assert min(counted["requests"][name] for name in ("english", "code")) > 0
    streamed = {"input_ids": prompts[0], "stream": True}  # of no other answer are times between tokens known
    with server.post("/generate", streamed) as answer:
        answer.read()
    assert not missing("sglang", {sample.name for sample in server.metrics()})
    assert set(counted["seconds"]) == {"draft step 1", "draft step 2 and later"}
    (line,) = (line for line in server.log.read_text().splitlines() if "drafts up to" in line)
    assert "is a FastMTP drafter and drafts up to 3 tokens; 3 by its autoregressive part; drafting from code (" in line
