"""A drafter does not change a server's outputs: all that is deterministic is equal with and without one."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.conftest import LORA
from tests.engine.prompts import prompts
from tests.engine.server import Server, streamed, tokens

pytestmark = pytest.mark.engine
PROMPT = prompts(50)[0]


def both(plain: Server, drafted: Server, prompt: str = PROMPT, **body: Any) -> dict[str, Any]:
    """The same request to both servers; the choices must be equal, log-probabilities apart. Returns the drafted one."""
    without, with_drafter = (server.complete(prompt, **body)["choices"][0] for server in (plain, drafted))
    for key in ("text", "token_ids", "finish_reason", "stop_reason"):
        assert with_drafter[key] == without[key], key
    return with_drafter  # type: ignore[no-any-return]


def test_greedy_texts_of_128_tokens(plain: Server, drafted: Server) -> None:
    body = {"max_tokens": 128, "ignore_eos": True}
    before = drafted.metric("vllm:spec_decode_num_accepted_tokens_total")
    expected = [tokens(answer)[0] for answer in plain.complete_all(prompts(12), 8, **body)]
    assert all(len(text) == 128 for text in expected)
    for count, together in ((12, 8), (3, 1)):
        found = [tokens(answer)[0] for answer in drafted.complete_all(prompts(12)[:count], together, **body)]
        assert found == expected[:count]
    assert drafted.metric("vllm:spec_decode_num_accepted_tokens_total") > before


@pytest.mark.parametrize("include", [False, True])
def test_stop_string(plain: Server, drafted: Server, include: bool) -> None:
    text = plain.complete(PROMPT, max_tokens=60)["choices"][0]["text"]
    stop = text[31:34]
    choice = both(plain, drafted, max_tokens=60, stop=[stop], include_stop_str_in_output=include)
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(stop) + len(stop) * include]


def test_stop_token(plain: Server, drafted: Server) -> None:
    stop = tokens(plain.complete(PROMPT, max_tokens=40))[0][25]
    assert both(plain, drafted, max_tokens=40, stop_token_ids=[stop])["stop_reason"] == stop


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9])
def test_max_tokens(plain: Server, drafted: Server, length: int) -> None:
    choice = both(plain, drafted, max_tokens=length, ignore_eos=True)
    assert choice["finish_reason"] == "length"
    assert len(choice["token_ids"]) == length


def test_up_to_the_longest_text_that_the_server_takes(plain: Server, drafted: Server) -> None:
    choice = both(plain, drafted, prompt=PROMPT * 6, max_tokens=512 - 6 * len(PROMPT), ignore_eos=True)
    assert choice["finish_reason"] == "length"


def test_logprobs(plain: Server, drafted: Server) -> None:
    body = {"max_tokens": 40, "logprobs": 3, "ignore_eos": True}
    without, with_drafter = (server.complete(PROMPT, **body)["choices"][0]["logprobs"] for server in (plain, drafted))
    assert with_drafter["tokens"] == without["tokens"]
    assert with_drafter["token_logprobs"] == pytest.approx(without["token_logprobs"], abs=1e-3)
    for found, expected in zip(with_drafter["top_logprobs"], without["top_logprobs"], strict=True):
        assert found == pytest.approx(expected, abs=1e-3)


def test_json_schema(plain: Server, drafted: Server) -> None:
    properties = {"colour": {"enum": ["red", "green"]}, "large": {"type": "boolean"}, "kind": {"const": "a box"}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    choice = both(plain, drafted, max_tokens=120, structured_outputs={"json": schema})
    assert set(json.loads(choice["text"])) == set(properties)


def test_prefix_cache_hits(plain: Server, drafted: Server, request: pytest.FixtureRequest) -> None:
    """Drafters with layers read the last block again, as vLLM's own do."""
    shared = "".join(prompts(50)[4:8])  # 320 tokens, ten blocks
    both(plain, drafted, prompt=shared + "one", max_tokens=24, ignore_eos=True)
    before = drafted.metric("vllm:prefix_cache_hits_total")
    both(plain, drafted, prompt=shared + "two", max_tokens=24, ignore_eos=True)
    has_layers = request.node.callspec.params["drafted"] == LORA
    assert drafted.metric("vllm:prefix_cache_hits_total") == before + (288 if has_layers else 320)


def test_preempted_requests(plain: Server, drafted: Server) -> None:
    asked, body = prompts(16), {"max_tokens": 300, "ignore_eos": True}
    preempted = drafted.metric("vllm:num_preemptions_total")
    found = [tokens(answer)[0] for answer in drafted.complete_all(asked, len(asked), **body)]
    assert drafted.metric("vllm:num_preemptions_total") > preempted
    expected = [tokens(answer)[0] for answer in plain.complete_all(asked, len(asked), **body)]
    assert found == expected


def test_aborted_request(plain: Server, drafted: Server) -> None:
    body = {"model": "target", "prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}
    before = drafted.metric("vllm:generation_tokens_total")
    with drafted.post("/v1/completions", body) as stream:
        assert stream.readline().startswith(b"data:")
    deadline = time.monotonic() + 60
    while drafted.metric("vllm:num_requests_running") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert drafted.metric("vllm:num_requests_running") == 0
    assert drafted.metric("vllm:generation_tokens_total") < before + 400
    both(plain, drafted, max_tokens=64, ignore_eos=True)


def test_greedy_and_sampled_requests_in_one_batch(plain: Server, drafted: Server) -> None:
    body = {"max_tokens": 64, "ignore_eos": True}
    expected = [tokens(answer)[0] for answer in plain.complete_all(prompts(8), 8, **body)]
    with ThreadPoolExecutor(1) as pool:
        sampled = pool.submit(drafted.complete_all, prompts(16)[8:], 8, temperature=1.0, **body)
        found = [tokens(answer)[0] for answer in drafted.complete_all(prompts(8), 8, **body)]
        sampled.result()
    assert found == expected


def test_four_kinds_of_requests_in_one_batch(plain: Server, drafted: Server) -> None:
    """Greedy with log-probabilities, greedy until a stop string, sampled with and without a seed."""
    stop = plain.complete(PROMPT, max_tokens=60)["choices"][0]["text"][31:34]
    kinds: list[dict[str, Any]] = [
        {"logprobs": 2},
        {"stop": [stop]},
        {"temperature": 0.9, "seed": 11},
        {"temperature": 0.9, "top_p": 0.9},
    ]
    body = {"max_tokens": 64, "ignore_eos": True}
    expected = [plain.complete(PROMPT, **body | kind)["choices"][0] for kind in kinds[:2]]
    seeded = set()
    for _ in range(4):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda kind: drafted.complete(PROMPT, **body | kind)["choices"][0], kinds))
        assert [choice["token_ids"] for choice in found[:2]] == [choice["token_ids"] for choice in expected]
        logprobs = [choice["logprobs"]["token_logprobs"] for choice in (found[0], expected[0])]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
        assert [len(choice["token_ids"]) for choice in found[2:]] == [64, 64]
        seeded.add(tuple(found[2]["token_ids"]))
    assert len(seeded) == 1


def test_streamed_text(plain: Server, drafted: Server) -> None:
    for prompt in prompts(4):
        body = {"model": "target", "prompt": prompt, "max_tokens": 48, "temperature": 0, "ignore_eos": True}
        expected = plain.complete(prompt, max_tokens=48, ignore_eos=True)
        assert streamed(drafted, body) == expected["choices"][0]["text"]


@pytest.mark.thorough
def test_many_aborted_and_preempted_requests(plain: Server, drafted: Server) -> None:
    preempted = drafted.metric("vllm:num_preemptions_total")

    def abort(number: int) -> None:
        prompt = prompts(50)[number % 50]
        body = {"model": "target", "prompt": prompt, "max_tokens": 400, "ignore_eos": True, "stream": True}
        with drafted.post("/v1/completions", body) as stream:
            for _ in range(1 + number % 9):
                stream.readline()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(abort, range(200)))
    while drafted.metric("vllm:num_preemptions_total") < preempted + 50:
        drafted.complete_all(prompts(32), 32, max_tokens=400, ignore_eos=True)
    both(plain, drafted, max_tokens=64, ignore_eos=True)


def test_a_seed_repeats_whatever_else_is_served(drafted: Server) -> None:
    body = {"max_tokens": 64, "ignore_eos": True, "temperature": 1.0, "seed": 11}
    alone = tokens(drafted.complete(PROMPT, **body))[0]
    in_company = [tokens(answer)[0] for answer in drafted.complete_all([PROMPT, *prompts(6)[1:]], 6, **body)]
    assert in_company[0] == alone
