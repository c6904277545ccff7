"""FastMTP through `vllm serve`: the core's drafts, the target's text, with and without draft vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, Window, cells, p_value
from tests.engine.fastmtp import Loop
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens
from tests.statistics import REJECT_BELOW
from tests.support.random_fastmtp import make_fastmtp, make_qwen2_target, make_vocabulary
from tests.support.random_models import make_target

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
DRAFTS, CHUNK = 3, 256  # tokens that a step reads at most
SAMPLES, TOGETHER = 4000, 500
SMALL, CAPITAL = "it was the best of ", "IT WAS THE WORST OF "
VOCABULARY, SIZE = 258, 120  # tokens of the target, and of each draft vocabulary


class Served(NamedTuple):
    """A server, the file of its drafts, the same without an engine, and the target in transformers."""

    server: Server
    drafts: Path
    loop: Loop
    exact: Reference


def make_models(folder: Path, make: Callable[..., Path]) -> Models:
    """A tiny random target and an untrained drafter for it, which looks back more than a random target does."""
    target = make(folder / "target", seed=3)
    return Models(target, make_fastmtp(folder / "drafter", target, attention=4.0), DRAFTS)


def serve(models: Models, log: Path, plugin: str, vocabulary: dict[str, Any]) -> Server:
    """A server with a test's plugin."""
    return Server(
        models.target,
        log,
        *CAPACITY,
        *("--max-num-batched-tokens", str(CHUNK)),
        *speculative_config(models.drafter, DRAFTS),
        *("--additional-config", json.dumps({"mtpc": vocabulary})),
        path=[SUPPORT / plugin],
        variables={"RECORDED_DRAFTS": str(log.with_name("drafts"))},
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Of kind llama."""
    return make_models(tmp_path_factory.mktemp("llama"), make_target)


@pytest.fixture(scope="module")
def by_language(llama: Models) -> dict[str, Any]:
    """Settings of the draft vocabulary."""
    file = make_vocabulary(llama.target.with_name("vocabulary.json"), VOCABULARY)
    return {"vocabulary": str(file), "size": SIZE}


@pytest.fixture(scope="module", params=["qwen2, whole vocabulary", "llama, by language"])
def served(
    request: pytest.FixtureRequest,
    llama: Models,
    by_language: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """Both kinds of layers, without draft vocabularies and with them."""
    folder = tmp_path_factory.mktemp("served")
    qwen2 = request.param.startswith("qwen2")
    models = make_models(folder, make_qwen2_target) if qwen2 else llama
    values = {"language": "none"} if qwen2 else by_language
    loop = Loop(models.target, models.drafter, open_vocabularies(values, models.drafter, VOCABULARY))
    with serve(models, folder / "log", "recorded_drafts", values) as server:
        yield Served(server, folder / "drafts", loop, Reference(models.target))


def recorded(served: Served, prompt: str, length: int) -> list[list[int]]:
    """The drafts of one request, one for each step."""
    before = served.drafts.read_text().count("\n") if served.drafts.exists() else 0
    served.server.complete(prompt, max_tokens=length, ignore_eos=True)
    return [json.loads(line)[0] for line in served.drafts.read_text().splitlines()[before:]]


def test_drafts_are_those_of_the_plain_loop(served: Served) -> None:
    steps = 0
    for i, prompt in enumerate(prompts(100)):
        prompt = prompt[: 8 + i % 70].upper() if i % 2 else prompt[: 8 + i % 70]
        found = recorded(served, prompt, 16)
        expected = served.loop.drafts(list(prompt.encode()), 16, DRAFTS)
        assert found[: len(expected)] == expected
        steps += len(expected)
    assert steps > 800
    if served.loop.vocabularies is not None:  # both languages, many times
        assert min(served.loop.used[0], served.loop.used[1]) > 50


def test_a_prompt_that_is_read_in_parts(served: Served) -> None:
    prompt = "".join(prompts(5))
    assert CHUNK < len(prompt) < 2 * CHUNK - 16
    found = recorded(served, prompt, 16)
    expected = served.loop.drafts(list(prompt.encode()), 16, DRAFTS)
    assert found[1 : 1 + len(expected)] == expected  # after the draft that follows the prompt's first part


def test_greedy_texts(served: Served) -> None:
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in prompts(12)]
    before = served.server.metric("vllm:spec_decode_num_accepted_tokens_total")
    for together in (1, 8):
        found = served.server.complete_all(prompts(12), together, max_tokens=48, ignore_eos=True)
        assert [tokens(answer)[0] for answer in found] == expected
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > before + 100


def sample(server: Server, prompt: str, sampling: Sampling) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    body = {"n": TOGETHER, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    answers = [server.complete(prompt, **body) for _ in range(SAMPLES // TOGETHER)]
    return [tuple(choice) for answer in answers for choice in tokens(answer)]


def test_languages_and_temperatures_in_one_batch(served: Served) -> None:
    asked = [(SMALL, Sampling()), (CAPITAL, Sampling(0.6)), (CAPITAL, Sampling(1.0, 20, 0.9))]
    greedy = prompts(4)
    with ThreadPoolExecutor(4) as pool:
        sampled = [pool.submit(sample, served.server, *one) for one in asked]
        texts = pool.submit(served.server.complete_all, greedy * 4, 4, max_tokens=48, ignore_eos=True)
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in greedy] * 4
    assert [tokens(answer)[0] for answer in texts.result()] == expected
    for (prompt, sampling), found in zip(asked, sampled, strict=True):
        table = cells(served.exact, list(prompt.encode()), sampling, SAMPLES)
        assert len(table) > 10
        assert p_value(found.result(), table) > REJECT_BELOW


def test_a_seed_repeats_whatever_else_is_served(served: Served) -> None:
    body = {"max_tokens": 48, "ignore_eos": True, "temperature": 1.0, "seed": 11}
    alone = tokens(served.server.complete(SMALL, **body))[0]
    in_company = served.server.complete_all([SMALL, *prompts(5)], 6, **body)
    assert tokens(in_company[0])[0] == alone


def test_a_seed_and_a_prompt_that_is_read_in_parts(served: Served) -> None:
    body = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.0, "seed": 11}
    prompt = "".join(prompts(5))
    assert len(prompt) > CHUNK
    alone = tokens(served.server.complete(prompt, **body))[0]
    in_company = served.server.complete_all([prompt, *prompts(3)], 4, **body)
    assert tokens(in_company[0])[0] == alone


def test_a_misstated_draft_distribution_fails(llama: Models, by_language: dict[str, Any], tmp_path: Path) -> None:
    with serve(llama, tmp_path / "log", "misstated_draft", by_language) as server:
        found = sample(server, SMALL, Sampling())
    assert p_value(found, cells(Reference(llama.target), list(SMALL.encode()), Sampling(), SAMPLES)) < REJECT_BELOW
    assert "the head's rows of them take" in (tmp_path / "log").read_text()
