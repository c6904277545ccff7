"""Requests of every kind are answered as without a drafter, or refused, and the server lives on."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.engine.prompts import prompts
from tests.engine_sglang.server import SGLangServer, texts

one_of_each = pytest.mark.parametrize("drafted", ["chain", "tree, synchronous"], indirect=True)
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
        {"frequency_penalty": 1.0, "presence_penalty": 0.5, "repetition_penalty": 1.2},
        {"frequency_penalty": 1.0, "temperature": 1.0, "min_p": 0.1, "top_p": 0.9},
        {"min_new_tokens": 8},
        {"temperature": 1.0, "logit_bias": {str(token): -1e30 for token in range(200)}},
    ],
    ids=lambda sampling: "-".join(sampling),
)
def test_unusual_sampling(plain: SGLangServer, drafted: SGLangServer, sampling: dict[str, Any]) -> None:
    answers = drafted.generate([PROMPT, *prompts(3)[1:]], **REQUEST | sampling)
    assert [len(text) for text in texts(answers)] == [24] * 3
    assert not {str(token) for text in texts(answers) for token in text} & sampling.get("logit_bias", {}).keys()
    assert drafted.generate(PROMPT, **REQUEST)["output_ids"] == plain.generate(PROMPT, **REQUEST)["output_ids"]


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
    with urlopen(f"http://127.0.0.1:{drafted.port}/get_server_info", timeout=30) as answer:
        assert json.load(answer)["speculative_algorithm"] == "MTPC"
    assert drafted.generate(PROMPT, **REQUEST)["output_ids"] == plain.generate(PROMPT, **REQUEST)["output_ids"]
