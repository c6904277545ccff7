"""Requests of every kind are answered as without a drafter, or refused, and the server lives on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import torch
from torch import Tensor

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.prompts import prompts
from tests.engine_sglang.server import SGLangServer, texts
from tests.oracles.penalties import counted_of, penalized
from tests.support.often import each_of

one_of_each = pytest.mark.parametrize("drafted", each_of(["chain", "tree, synchronous"], ("chain",)), indirect=True)
pytestmark = [pytest.mark.engine, one_of_each]
PROMPT = prompts(50)[0]
REQUEST = {"max_new_tokens": 24, "ignore_eos": True}


def asked(server: SGLangServer, route: str, body: dict[str, Any]) -> Any:
    """The answer to one request."""
    with server.post(route, body) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 2e-6}, {"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"n": 3}],
    ids=str,
)
def test_as_good_as_greedy(plain: SGLangServer, drafted: SGLangServer, sampling: dict[str, Any]) -> None:
    expected = plain.generate(PROMPT, **REQUEST)["output_ids"]
    temperature = 0.0 if "n" in sampling else 1.0
    found = drafted.generate(PROMPT, **REQUEST | {"temperature": temperature} | sampling)
    assert all(text == expected for text in texts(found if isinstance(found, list) else [found]))


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 100.0},
        {"frequency_penalty": 1.0, "temperature": 1.0, "min_p": 0.1, "top_p": 0.9},
        {"temperature": 1.0, "logit_bias": {str(token): -1e30 for token in range(200)}},
    ],
    ids=lambda sampling: "-".join(sampling),
)
def test_unusual_sampling(plain: SGLangServer, drafted: SGLangServer, sampling: dict[str, Any]) -> None:
    answers = drafted.generate([PROMPT, *prompts(3)[1:]], **REQUEST | sampling)
    assert [len(text) for text in texts(answers)] == [24] * 3
    assert not {str(token) for text in texts(answers) for token in text} & sampling.get("logit_bias", {}).keys()
    assert drafted.generate(PROMPT, **REQUEST)["output_ids"] == plain.generate(PROMPT, **REQUEST)["output_ids"]


class Penalized(Reference):
    """The target whose tokens are penalized one at a time; late: see `tests.oracles.penalties.counted_of`."""

    def __init__(self, folder: Path, prompt: list[int], asked: dict[str, Any], late: bool) -> None:
        super().__init__(folder)
        self.prompt, self.asked, self.late = prompt, asked, late

    def penalize(self, logits: Tensor, output: list[int]) -> Tensor:
        """Logits [V] of the next token."""
        logits = penalized(logits.double(), counted_of(self.prompt, output, self.late), **self.asked)
        if len(output) < self.asked.get("min_new_tokens", 0):
            logits[self.asked["stop_token_ids"]] = -torch.inf
        return logits

    @torch.inference_mode()
    def text(self, length: int) -> list[int]:
        """The most likely output, until a stop token ends it."""
        past, step, output = None, torch.tensor([self.prompt]), []
        while len(output) < length and not set(output[-1:]) & set(self.asked.get("stop_token_ids", ())):
            out = self.model(input_ids=step, past_key_values=past, use_cache=True)
            output.append(int(self.penalize(out.logits[0, -1], output).argmax()))
            past, step = out.past_key_values, torch.tensor([output[-1:]])
        return output

    @torch.inference_mode()
    def next_probs(self, texts: list[list[int]], sampling: Sampling) -> Tensor:
        """As `Reference.next_probs`, of texts that begin with the prompt."""
        batches = torch.tensor(texts).split(256)
        logits = torch.cat([self.model(input_ids=batch, use_cache=False).logits[:, -1] for batch in batches])
        outputs = [text[len(self.prompt) :] for text in texts]
        rows = [self.penalize(row, output) for row, output in zip(logits, outputs, strict=True)]
        return (torch.stack(rows) / sampling.temperature).softmax(-1)


STOPS = [32, 101, 116]  # a blank, e and t: without min_new_tokens texts end at once
PENALTIES: list[dict[str, Any]] = [
    {},
    {"frequency_penalty": 0.6},
    {"presence_penalty": 0.8},
    {"repetition_penalty": 1.3},
    {"min_new_tokens": 16, "stop_token_ids": STOPS},
    {"frequency_penalty": 0.4, "repetition_penalty": 1.1, "min_new_tokens": 9, "stop_token_ids": STOPS},
]


def test_penalties_of_one_batch(models: Models, drafted: SGLangServer, request: pytest.FixtureRequest) -> None:
    """Each draft is penalized by its own path; engines' own drafters penalize all drafts of a step alike."""
    late = "synchronous" not in request.node.callspec.params["drafted"]
    asked = [{**each, "ignore_eos": "stop_token_ids" not in each} for each in PENALTIES]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda each: drafted.generate(PROMPT, max_new_tokens=48, **each)["output_ids"], asked))
    prompt = list(PROMPT.encode())
    expected = [Penalized(models.target, prompt, each, late).text(48) for each in PENALTIES]
    assert found == expected
    assert len(set(map(tuple, expected))) == len(PENALTIES)


@pytest.mark.thorough
def test_a_penalty_and_a_temperature(models: Models, drafted: SGLangServer, request: pytest.FixtureRequest) -> None:
    """The joint of the first tokens where repeating is rewarded, and that it is not the one without the reward."""
    late = "synchronous" not in request.node.callspec.params["drafted"]
    prompt, sampling, asked = PROMPT[:40], Sampling(temperature=0.9), {"presence_penalty": -2.0}
    retracted = drafted.metric("sglang:num_retracted_requests_total")
    windows: list[Window] = []
    for _ in range(120):  # few at a time: after a retraction penalties are counted from zero
        answers = drafted.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True, temperature=0.9, n=30, **asked)
        windows += [tuple(text) for text in texts(answers)]
    assert drafted.metric("sglang:num_retracted_requests_total") == retracted
    tokens = list(prompt.encode())
    honest, control = (
        p_value(windows, cells(Penalized(models.target, tokens, each, late), tokens, sampling, len(windows)))
        for each in (asked, {})
    )
    assert honest > REJECT_BELOW > control


STOPPED = [
    ({"stop": ["ng ", "in"]}, 80),  # the first in the text ends it, not the first of the list
    ({"stop": ["nd e", "zz"]}, 80),
    ({"stop": ["e t", "the"]}, 30),
    ({"stop_regex": ["[aeiou]n"], "stop": ["th"]}, 60),
]


def test_stop_strings(plain: SGLangServer, drafted: SGLangServer) -> None:
    for sampling, length in STOPPED:
        for limit in (length - 3, length):
            asked = {"max_new_tokens": limit, "ignore_eos": True} | sampling
            for prompt in prompts(2):
                found, expected = (server.generate(prompt, **asked) for server in (drafted, plain))
                # Not their texts: the plain server leaves the beginning of a stop string that goes over token 50.
                assert found["output_ids"] == expected["output_ids"], (asked, prompt)
                assert found["meta_info"]["finish_reason"] == expected["meta_info"]["finish_reason"]


def test_the_prompt_alone(plain: SGLangServer, drafted: SGLangServer) -> None:
    assert drafted.generate(PROMPT, max_new_tokens=0)["output_ids"] == []
    body = {"query": PROMPT, "items": ["one", "two"], "label_token_ids": [97, 98], "model": "target"}
    (found, expected) = (asked(server, "/v1/score", body)["scores"] for server in (drafted, plain))
    for row, same in zip(found, expected, strict=True):
        assert row == pytest.approx(same, abs=1e-5)


def test_a_session(plain: SGLangServer, drafted: SGLangServer) -> None:
    def conversation(server: SGLangServer) -> list[list[int]]:
        session, last, found = asked(server, "/open_session", {"capacity_of_str_len": 1000}), None, []
        for text in (PROMPT, "\n\nAnd then", "\n\nAt last"):
            parameters = {"id": session, "rid": last, "offset": -1} if last else {"id": session}
            body = {"text": text, "session_params": parameters, "sampling_params": {"temperature": 0, **REQUEST}}
            answer = asked(server, "/generate", body)
            last = answer["meta_info"]["id"]
            found.append(answer["output_ids"])
        return found

    assert conversation(drafted) == conversation(plain)


@pytest.mark.parametrize(
    ("options", "sampling"),
    [
        ({}, {"regex": "["}),
        ({}, {"beam_width": 3}),
        ({}, {"temperature": -1.0}),
        ({"return_hidden_states": True}, {}),
        ({"return_sampling_mask": True}, {}),
        ({"text": "a" * 1000}, {}),
    ],
    ids=str,
)
def test_refused(plain: SGLangServer, drafted: SGLangServer, options: dict[str, Any], sampling: dict[str, Any]) -> None:
    with pytest.raises(HTTPError) as caught:
        drafted.generate(PROMPT, options=options, **REQUEST | sampling)
    assert caught.value.code == 400
    assert drafted.generate(PROMPT, **REQUEST)["output_ids"] == plain.generate(PROMPT, **REQUEST)["output_ids"]


def test_administration(plain: SGLangServer, drafted: SGLangServer) -> None:
    with drafted.post("/flush_cache", {}) as answer:
        assert answer.status == 200
    with urlopen(f"http://127.0.0.1:{drafted.port}/get_server_info", timeout=60) as answer:
        assert json.load(answer)["speculative_algorithm"] == "MTPC"
    assert drafted.generate(PROMPT, **REQUEST)["output_ids"] == plain.generate(PROMPT, **REQUEST)["output_ids"]
