"""A drafter does not change a server's outputs: all that is deterministic is equal with and without one."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.prompts import prompts
from tests.engine.server import streamed
from tests.engine_sglang.conftest import KINDS, OFTEN
from tests.engine_sglang.server import Answer, SGLangServer, texts
from tests.support.often import each_of

pytestmark = pytest.mark.engine
PROMPTS = prompts(50)
PROMPT = PROMPTS[0]
# What concerns single requests is tested with a chain, a tree, adapted layers, and both translations of draft models.
one_of_each = pytest.mark.parametrize("drafted", each_of(list(KINDS)[:5], OFTEN), indirect=True)
chain = pytest.mark.parametrize("drafted", ["chain"], indirect=True)


@pytest.fixture(scope="session")
def greedy_texts(plain: SGLangServer) -> list[list[int]]:
    """12 texts of 128 tokens, without a drafter."""
    answers = plain.generate_all(PROMPTS[:12], 8, max_new_tokens=128, ignore_eos=True)
    assert all(answer["meta_info"]["completion_tokens"] == 128 for answer in answers)
    return texts(answers)


def both(plain: SGLangServer, drafted: SGLangServer, prompt: str = PROMPT, **request: Any) -> Answer:
    """The same request to both servers; the answers must be equal. Returns the drafted one."""
    without, with_drafter = (server.generate(prompt, **request) for server in (plain, drafted))
    for key in ("text", "output_ids"):
        assert with_drafter[key] == without[key], key
    assert with_drafter["meta_info"]["finish_reason"] == without["meta_info"]["finish_reason"]
    return with_drafter  # type: ignore[no-any-return]


def test_greedy_texts_of_128_tokens(greedy_texts: list[list[int]], drafted: SGLangServer) -> None:
    for count, together in ((12, 8), (3, 1)):
        answers = drafted.generate_all(PROMPTS[:count], together, max_new_tokens=128, ignore_eos=True)
        assert texts(answers) == greedy_texts[:count]
        assert sum(answer["meta_info"]["spec_verify_ct"] for answer in answers) < count * 128 / 2


@one_of_each
@pytest.mark.parametrize("keep", [False, True])
def test_stop_string(plain: SGLangServer, drafted: SGLangServer, keep: bool) -> None:
    text = plain.generate(PROMPT, max_new_tokens=60)["text"]
    stop = text[31:34]
    answer = both(plain, drafted, max_new_tokens=60, stop=[stop], no_stop_trim=keep)
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["text"] == text[: text.index(stop) + len(stop) * keep]


@one_of_each
def test_stop_token(plain: SGLangServer, drafted: SGLangServer) -> None:
    stop = plain.generate(PROMPT, max_new_tokens=40)["output_ids"][25]
    answer = both(plain, drafted, max_new_tokens=40, stop_token_ids=[stop])
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


@one_of_each
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9])
def test_max_tokens(plain: SGLangServer, drafted: SGLangServer, length: int) -> None:
    answer = both(plain, drafted, max_new_tokens=length, ignore_eos=True)
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": length}
    assert len(answer["output_ids"]) == length


@one_of_each
def test_logprobs(plain: SGLangServer, drafted: SGLangServer) -> None:
    options = {"return_logprob": True, "top_logprobs_num": 3, "logprob_start_len": 0}
    without, with_drafter = (
        server.generate(PROMPT, options=options, max_new_tokens=40, ignore_eos=True)["meta_info"]
        for server in (plain, drafted)
    )
    for key in ("input_token_logprobs", "output_token_logprobs"):
        (found, tokens), (expected, same) = (zip(*[entry[:2] for entry in of[key][1:]], strict=True)
                                             for of in (with_drafter, without))  # fmt: skip
        assert tokens == same
        assert found == pytest.approx(expected, abs=1e-3)
    tops = zip(with_drafter["output_top_logprobs"], without["output_top_logprobs"], strict=True)
    for found_top, expected_top in tops:
        assert {token: logprob for logprob, token, _ in found_top} == pytest.approx(
            {token: logprob for logprob, token, _ in expected_top}, abs=1e-3
        )


@one_of_each
def test_regex(plain: SGLangServer, drafted: SGLangServer) -> None:
    answer = both(plain, drafted, max_new_tokens=60, regex=r"(red|green) [0-9]{3}-[a-f]{8}\.")
    assert answer["text"][-1] == "."


@one_of_each
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_schema(plain: SGLangServer, drafted: SGLangServer, temperature: float) -> None:
    properties = {"colour": {"enum": ["red", "green"]}, "large": {"type": "boolean"}, "kind": {"const": "a box"}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    request = {"max_new_tokens": 120, "json_schema": json.dumps(schema), "temperature": temperature}
    answer = both(plain, drafted, **request) if temperature == 0 else drafted.generate(PROMPT, **request)
    assert set(json.loads(answer["text"])) == set(properties)


@one_of_each
def test_biases(plain: SGLangServer, drafted: SGLangServer) -> None:
    request = {"max_new_tokens": 60, "ignore_eos": True}
    answer = both(plain, drafted, logit_bias={"115": -6.0, "32": 1.5}, **request)  # the text without is full of "s"
    assert answer["text"] != plain.generate(PROMPT, **request)["text"]


def test_radix_cache_hits(plain: SGLangServer, drafted: SGLangServer) -> None:
    shared = "".join(PROMPTS[4:8])  # 320 tokens
    both(plain, drafted, prompt=shared + "one", max_new_tokens=24, ignore_eos=True)
    answer = both(plain, drafted, prompt=shared + "two", max_new_tokens=24, ignore_eos=True)
    assert answer["meta_info"]["cached_tokens"] >= 304


@one_of_each
def test_retracted_requests(plain: SGLangServer, drafted: SGLangServer) -> None:
    lengths = [8, 400] * 16  # whenever a short request ends, the scheduler admits more than there will be room for

    def answers(server: SGLangServer) -> list[list[int]]:
        with ThreadPoolExecutor(len(lengths)) as pool:
            requests = zip(PROMPTS, lengths, strict=False)
            asked = [pool.submit(server.generate, prompt, max_new_tokens=length) for prompt, length in requests]
            return texts([answer.result() for answer in asked])

    expected, retracted = answers(plain), drafted.metric("sglang:num_retracted_requests_total")
    for _ in range(10):  # on a busy machine requests may come too slowly for a retraction
        assert answers(drafted) == expected
        if drafted.metric("sglang:num_retracted_requests_total") > retracted:
            return
    raise AssertionError("no request was retracted")


@one_of_each
def test_aborted_request(plain: SGLangServer, drafted: SGLangServer) -> None:
    counters = ("sglang:num_aborted_requests_total", "sglang:generation_tokens_total")
    aborted, generated = map(drafted.metric, counters)
    body = {"text": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    with drafted.post("/generate", body) as stream:
        assert stream.readline().startswith(b"data:")
    deadline = time.monotonic() + 60
    while drafted.metric(counters[0]) == aborted and time.monotonic() < deadline:
        time.sleep(0.1)
    assert drafted.metric(counters[0]) == aborted + 1
    assert drafted.metric(counters[1]) < generated + 400
    both(plain, drafted, ignore_eos=True)


@one_of_each
def test_greedy_and_sampled_requests_in_one_batch(greedy_texts: list[list[int]], drafted: SGLangServer) -> None:
    request = {"max_new_tokens": 64, "ignore_eos": True}
    with ThreadPoolExecutor(1) as pool:
        sampled = pool.submit(drafted.generate_all, PROMPTS[8:16], 8, temperature=1.0, **request)
        found = texts(drafted.generate_all(PROMPTS[:8], 8, **request))
        sampled.result()
    assert found == [text[:64] for text in greedy_texts[:8]]


@one_of_each
def test_four_kinds_of_requests_in_one_batch(plain: SGLangServer, drafted: SGLangServer) -> None:
    """Greedy with log-probabilities, greedy until a stop string, sampled with and without a seed."""
    stop = plain.generate(PROMPT, max_new_tokens=60)["text"][31:34]
    kinds: list[dict[str, Any]] = [
        {"options": {"return_logprob": True, "top_logprobs_num": 2}},
        {"stop": [stop]},
        {"temperature": 0.9, "sampling_seed": 11},
        {"temperature": 0.9, "top_p": 0.9},
    ]
    request = {"max_new_tokens": 64, "ignore_eos": True}
    for _ in range(4):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda kind: drafted.generate(PROMPT, **request | kind), kinds))
        expected = [plain.generate(PROMPT, **request | kind) for kind in kinds[:2]]
        assert texts(found[:2]) == texts(expected)
        logprobs = [
            [entry[0] for entry in each["meta_info"]["output_token_logprobs"]] for each in (found[0], expected[0])
        ]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
        assert [len(text) for text in texts(found[2:])] == [64, 64]


@one_of_each
def test_streamed_text(plain: SGLangServer, drafted: SGLangServer) -> None:
    for prompt in PROMPTS[:4]:
        body = {"model": "target", "prompt": prompt, "max_tokens": 48, "temperature": 0, "ignore_eos": True}
        assert streamed(drafted, body) == plain.generate(prompt, max_new_tokens=48, ignore_eos=True)["text"]


@one_of_each
@pytest.mark.thorough
def test_many_aborted_and_retracted_requests(plain: SGLangServer, drafted: SGLangServer) -> None:
    counters = ("sglang:num_aborted_requests_total", "sglang:num_retracted_requests_total")
    aborted, retracted = map(drafted.metric, counters)

    def abort(number: int) -> None:
        sampling = {"max_new_tokens": 400, "ignore_eos": True}
        body = {"text": PROMPTS[number % 50], "stream": True, "sampling_params": sampling}
        with drafted.post("/generate", body) as stream:
            for _ in range(1 + number % 9):
                stream.readline()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(abort, range(200)))
    deadline = time.monotonic() + 60
    while drafted.metric(counters[0]) < aborted + 150 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert drafted.metric(counters[0]) >= aborted + 150  # some have ended before
    lengths = [8, 400] * 25
    while drafted.metric(counters[1]) < retracted + 50:
        with ThreadPoolExecutor(len(lengths)) as pool:
            asked = zip(PROMPTS, lengths, strict=False)
            list(pool.map(lambda one: drafted.generate(one[0], max_new_tokens=one[1]), asked))
    both(plain, drafted, max_new_tokens=64, ignore_eos=True)


@chain
def test_up_to_the_longest_text_that_the_server_takes(plain: SGLangServer, drafted: SGLangServer) -> None:
    room = 512 - 5 * len(PROMPT) - 40  # SGLang keeps some of the context free for drafts
    answer = both(plain, drafted, prompt=PROMPT * 5, max_new_tokens=room, ignore_eos=True)
    assert len(answer["output_ids"]) == room
