"""As many drafts are accepted as in the plain decoding loop: greedy, step by step; sampled, within noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.acceptance import (
    TOKENS,
    Loop,
    Steps,
    assert_as_expected,
    assert_equally_often,
    counted,
    outcome_of_check,
    with_permuted_head,
)
from tests.engine.conftest import CAPACITY, WHOLE, Models
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens

pytestmark = [
    pytest.mark.engine,
    pytest.mark.thorough,
    pytest.mark.parametrize("drafted", ["mtpc"], indirect=True),
]


@pytest.fixture(scope="module")
def loop(models: Models) -> Loop:
    """What ships, without an engine."""
    return Loop(models.target, models.drafter)


def serve(drafted: Server, prompt: str, **body: Any) -> tuple[dict[str, Any], Steps]:
    """An answer and its steps; nothing else may be served meanwhile."""
    names = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total")
    before = [drafted.metric(name) for name in names]
    answer = drafted.complete(prompt, max_tokens=TOKENS, ignore_eos=True, **body)
    return answer, Steps(*(int(drafted.metric(name) - old) for name, old in zip(names, before, strict=True)))


def test_greedy(drafted: Server, loop: Loop) -> None:
    for prompt in prompts(8):
        answer, steps = serve(drafted, prompt)
        expected = loop.decode(prompt, 0.0)
        assert tokens(answer) == [expected.tokens]
        assert steps == counted(expected)


def test_the_check_of_a_running_server(drafted: Server, models: Models, tmp_path: Path) -> None:
    """`mtpc check-acceptance` finds a wrong head, and nothing where there is none."""
    assert_as_expected(drafted, models)
    wrong = speculative_config(with_permuted_head(models.drafter, tmp_path / "wrong"), models.drafts)
    with Server(models.target, tmp_path / "log", *CAPACITY, *wrong, *WHOLE) as server:
        assert outcome_of_check(server, models) == "lower than expected"


def test_sampled(drafted: Server, loop: Loop) -> None:
    asked = prompts(24)
    served = [serve(drafted, prompt, temperature=1.0, n=4)[1] for prompt in asked]
    assert_equally_often(served, [counted(loop.decode(prompt, 1.0)) for prompt in asked])
