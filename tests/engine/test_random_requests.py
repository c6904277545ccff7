"""Random combinations of features of requests, many at a time, in a server with little memory.

Greedy outputs equal those of a server without a drafter.  Log-probabilities of sampled tokens are the target's along
the sampled output; after a wrong entry in the KV cache they would not be.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine.exact import Reference
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config
from tests.engine.test_draft_methods import CASES
from tests.support import random_echo
from tests.support.often import each_of
from tests.support.random_requests import (
    ABORT,
    PLUGINS,
    SCHEMA,
    all_answers,
    logprobs_along,
    random_prompt,
)
from tests.support.random_requests import sometimes as sometimes_of

pytestmark = pytest.mark.engine
REQUESTS, ROUTE = 400, "/v1/completions"
LITTLE = ("--block-size", "32", "--num-gpu-blocks-override", "20", "--max-num-seqs", "32")
PARTS = ("--max-num-batched-tokens", "64")  # most prompts are read in several steps
GRAMMARS = [{"regex": "[A-Za-z]{9}"}, {"regex": "[a-z ]+"}, {"choice": ["one", "only", "two"]}, {"json": SCHEMA}]
Choice = dict[str, Any]


def random_request(random: Random) -> dict[str, Any]:
    """A body for /v1/completions; under `ABORT` the number of lines after which it is aborted."""
    sometimes, prompt = partial(sometimes_of, random), random_prompt(random)
    length, is_sampled = random.choice([1, 2, 3, 5, 8, 16, 24, 48, 64]), random.random() < 0.4
    parameters = (
        sometimes(0.2, max_draft_tokens=random.choice([0, 1, 2, 9]))
        | sometimes(0.2, prediction=random.choice(prompts(50)))
        | sometimes(0.2, tenant=random.choice("ab"))
    )
    sampling = (
        {"temperature": random.choice([0.3, 0.7, 1.0, 1.5]), "logprobs": random.randint(0, 3)}
        | sometimes(0.3, top_k=random.choice([1, 5, 20]))
        | sometimes(0.3, top_p=random.choice([0.5, 0.9]))
        | sometimes(0.3, seed=random.randrange(99))
    )
    return (
        {"prompt": prompt, "max_tokens": length, "ignore_eos": random.random() < 0.7, "return_token_ids": True}
        | (sampling if is_sampled else {"temperature": 0} | sometimes(0.3, logprobs=random.randint(0, 3)))
        | sometimes(0.12, repetition_penalty=random.choice([0.9, 1.3]))
        | sometimes(0.12, presence_penalty=random.choice([-0.5, 0.7]))
        | sometimes(0.12, frequency_penalty=0.6)
        | sometimes(0.2, stop=random.sample(["e ", " t", "in", "\n", "a"], 2))
        | sometimes(0.1, include_stop_str_in_output=True)
        | sometimes(0.15, stop_token_ids=random.sample(range(258), 3))
        | sometimes(0.08, min_tokens=min(length, random.choice([2, 5, 20])))
        | sometimes(0.05, allowed_token_ids=sorted(random.sample(range(258), 60)))
        | sometimes(0.05, bad_words=["e"])
        | sometimes(0.15, structured_outputs=random.choice(GRAMMARS))
        | sometimes(0.1, n=2)
        | ({"vllm_xargs": parameters} if parameters else {})
        | sometimes(0.1, **{ABORT: random.randint(1, 6)})
    )


def check_greedy(found: Choice, expected: Choice) -> None:
    """The same output, and log-probabilities where they were asked for."""
    for key in ("text", "token_ids", "finish_reason", "stop_reason"):
        assert found[key] == expected[key], key
    if expected["logprobs"]:
        stated, wanted = (choice["logprobs"]["token_logprobs"] for choice in (found, expected))
        assert stated == pytest.approx(wanted, abs=2e-3)


@pytest.mark.parametrize("name", each_of(CASES, ("hybrid, copying",)))
def test_random_requests(name: str, tmp_path: Path) -> None:
    case, random = CASES[name](tmp_path), Random(name)
    requests = [random_request(random) for _ in range(REQUESTS)]
    limits = (*LITTLE, *PARTS, *case.arguments)
    drafting = speculative_config(case.models.drafter, case.models.drafts)
    settings = () if case.vocabulary is None else ("--additional-config", json.dumps({"mtpc": case.vocabulary}))
    random_echo.forget_method()  # which the case may have registered
    with Server(case.models.target, tmp_path / "plain", *limits) as server:
        expected = all_answers(server, ROUTE, requests)
    with Server(case.models.target, tmp_path / "log", *limits, *drafting, *settings, path=PLUGINS) as server:
        found = all_answers(server, ROUTE, requests)
        assert server.metric("vllm:spec_decode_num_accepted_tokens_total") > 50
        assert server.metric("vllm:num_preemptions_total") > 0
        assert server.metric("vllm:prefix_cache_hits_total") > 0
    reference, greedy, sampled = Reference(case.plain), 0, 0
    for request, ours, theirs in zip(requests, found, expected, strict=True):
        if isinstance(ours, str) or isinstance(theirs, str):
            assert ours == theirs
        elif request["temperature"] == 0 or request.get("top_k") == 1:
            greedy += len(ours["choices"])
            for one, other in zip(ours["choices"], theirs["choices"], strict=True):
                check_greedy(one, other)
        elif "structured_outputs" not in request:  # whose log-probabilities are those after the grammar
            for one in ours["choices"]:
                stated = one["logprobs"]["token_logprobs"]
                along, wrong = (
                    logprobs_along(reference, prompt, one["token_ids"])[: len(stated)]
                    for prompt in (request["prompt"], request["prompt"][:-1] + "~")
                )
                assert stated == pytest.approx(along, abs=2e-3)
                sampled += stated != pytest.approx(wrong, abs=2e-3)  # as a control, along another text
    assert greedy > REQUESTS / 3
    assert sampled > REQUESTS / 6
