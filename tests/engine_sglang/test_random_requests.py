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
from tests.engine_sglang.server import Answer, SGLangServer, drafting
from tests.engine_sglang.test_draft_methods import CASES, OFTEN, SYNCHRONOUS
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
REQUESTS, ROUTE = 250, "/generate"
LITTLE = ("--max-total-tokens", "1024", "--max-running-requests", "24", "--schedule-conservativeness", "0.05")
# A request is retracted in every seventh step as well: how often memory is short depends on the drafter and on timing.
RETRACTING = {"SGLANG_TEST_RETRACT": "true", "SGLANG_TEST_RETRACT_INTERVAL": "7"}
GRAMMARS = [{"regex": "[A-Za-z]{9}"}, {"regex": "[a-z ]+"}, {"json_schema": json.dumps(SCHEMA)}]
CHANGED = {"regex", "json_schema", "logit_bias"}  # what log-probabilities take into account


def random_request(random: Random) -> dict[str, Any]:
    """A body for /generate; under `ABORT` the number of lines after which it is aborted.

    Penalties are tested with exact references in `test_requests`: SGLang counts tokens late where steps overlap.
    """
    sometimes, prompt = partial(sometimes_of, random), random_prompt(random)
    is_sampled = random.random() < 0.4
    parameters = sometimes(0.2, max_draft_tokens=random.choice([0, 1, 2, 9])) | sometimes(
        0.2, prediction=random.choice(prompts(50))
    )
    heated = (
        {"temperature": random.choice([0.3, 0.7, 1.0, 1.5])}
        | sometimes(0.3, top_k=random.choice([5, 20]))
        | sometimes(0.3, top_p=random.choice([0.5, 0.9]))
        | sometimes(0.1, min_p=0.05)
    )
    sampling = (
        {"max_new_tokens": random.choice([1, 2, 3, 5, 8, 16, 24, 48, 64]), "ignore_eos": random.random() < 0.7}
        | (heated if is_sampled else {"temperature": 0})
        | sometimes(0.2, stop=random.sample(["e ", " t", "in", "\n", "a"], 2))
        | sometimes(0.1, no_stop_trim=True)
        | sometimes(0.15, stop_token_ids=random.sample(range(258), 3))
        | sometimes(0.05, logit_bias={str(random.randrange(256)): random.choice([-100, 5])})
        # SGLang generates another token after a grammar's end where the end of the text is ignored.
        | sometimes(0.15, **random.choice(GRAMMARS), ignore_eos=False)
        | sometimes(0.1, n=2)
        | ({"custom_params": parameters} if parameters else {})
    )
    logprobs = {"return_logprob": True} if is_sampled else sometimes(0.3, return_logprob=True, top_logprobs_num=2)
    aborted = sometimes(0.1, **{ABORT: random.randint(1, 6)})
    return {"text": prompt, "sampling_params": sampling} | logprobs | aborted


def listed(answer: Any) -> list[Answer]:
    """The outputs of a request, of which there may be one."""
    return answer if isinstance(answer, list) else [answer]


def logprobs_of(answer: Answer) -> list[float]:
    """Log-probabilities of its tokens."""
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


@pytest.mark.parametrize("name", each_of(CASES, OFTEN[:1]))
def test_random_requests(name: str, tmp_path: Path) -> None:
    case, random = CASES[name](tmp_path), Random(name)
    requests = [random_request(random) for _ in range(REQUESTS)]
    tokens = () if case.token_map is None else ("--speculative-token-map", case.token_map)
    shared = [argument for argument in case.arguments if argument in (SYNCHRONOUS, "--trust-remote-code")]
    with SGLangServer(case.models.target, tmp_path / "plain", *LITTLE, *shared) as server:
        expected = all_answers(server, ROUTE, requests)
    switched_on = drafting(case.models.drafter, *case.drafts, *tokens, *case.arguments)
    started = SGLangServer(
        case.models.target, tmp_path / "log", *LITTLE, *switched_on, path=PLUGINS, variables=RETRACTING
    )
    with started as server:
        found = all_answers(server, ROUTE, requests)
        assert server.metric("sglang:num_retracted_requests_total") > 10
    reference, greedy, sampled, accepted = Reference(case.plain), 0, 0, 0
    for request, ours, theirs in zip(requests, found, expected, strict=True):
        sampling = request["sampling_params"]
        if isinstance(ours, str) or isinstance(theirs, str):
            assert ours == theirs
        elif not sampling["temperature"]:
            greedy += len(listed(ours))
            for one, other in zip(listed(ours), listed(theirs), strict=True):
                accepted += len(one["output_ids"]) > one["meta_info"].get("spec_verify_ct", 0) + 1
                for key in ("text", "output_ids"):
                    assert one[key] == other[key], key
                assert one["meta_info"]["finish_reason"] == other["meta_info"]["finish_reason"]
                if "return_logprob" in request:
                    assert logprobs_of(one) == pytest.approx(logprobs_of(other), abs=2e-3)
        elif not CHANGED & sampling.keys():
            for one in listed(ours):
                along, wrong = (
                    logprobs_along(reference, prompt, one["output_ids"], sampling["temperature"])
                    for prompt in (request["text"], request["text"][:-1] + "~")
                )
                assert logprobs_of(one) == pytest.approx(along, abs=2e-3)
                sampled += logprobs_of(one) != pytest.approx(wrong, abs=2e-3)  # as a control, along another text
    assert greedy > REQUESTS / 3
    assert sampled > REQUESTS / 6
    assert accepted > 10
