"""The chat model and the FastMTP drafter that ships, through `vllm serve`: the same answers in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpc.lab.servers.vllm_engine import vllm_counters
from tests.engine.chat import ACCEPTANCE_LENGTH, DRAFTER, chat_prompts, make_chat_model
from tests.engine.exact import Reference
from tests.engine.server import Server, speculative_config, tokens
from tests.support.dashboard import missing

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
EACH, LENGTH, DRAFTS = 1, 40, 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is served."""
    return make_chat_model(tmp_path_factory.mktemp("chat") / "smollm2")


@pytest.fixture(scope="module")
def server(target: Path) -> Iterator[Server]:
    """With the draft vocabularies that the drafter brings."""
    with Server(target, target.with_name("log"), "--max-num-seqs", "8", *speculative_config(DRAFTER, DRAFTS)) as server:
        yield server


def test_answers_in_every_language(target: Path, server: Server) -> None:
    prompts, exact = chat_prompts(target, EACH), Reference(target)
    expected = [exact.greedy(prompt, LENGTH) for prompt in prompts]
    alone = [server.complete(prompt, max_tokens=LENGTH, ignore_eos=True) for prompt in prompts[:EACH]]
    together = server.complete_all(prompts, 5, max_tokens=LENGTH, ignore_eos=True)
    assert [tokens(answer)[0] for answer in (*alone, *together)] == [*expected[:EACH], *expected]
    drafts, accepted = (server.metric(f"vllm:spec_decode_num_{what}_total") for what in ("drafts", "accepted_tokens"))
    assert 1 + accepted / drafts > ACCEPTANCE_LENGTH


def test_metrics_are_on_the_page(server: Server) -> None:
    """Sums are vLLM's own, which leave out what a request that has ended drafted last."""
    engine, counted = vllm_counters(server.metrics()), server.counted()
    for place, accepted in enumerate(engine.accepted_at):
        assert 0 <= counted["position"][str(place)] - accepted <= sum(counted["requests"].values())
    assert sum(counted["vocabulary"].values()) == sum(counted["position"].values())
    assert min(counted["requests"][name] for name in ("english", "code")) > 0
    assert not missing("vllm", {sample.name for sample in server.metrics()})
    assert set(counted["seconds"]) == {f"draft step {step}" for step in range(1, DRAFTS + 1)}


def test_one_line_says_what_drafts(server: Server) -> None:
    (line,) = (line for line in server.log.read_text().splitlines() if "drafts up to" in line)
    assert "is a FastMTP drafter and drafts up to 3 tokens; 3 by its autoregressive part; drafting from code (" in line
