"""FastMTP on SGLang's draft worker: the core's drafts, the target's text and distribution, with vocabularies or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, Window, cells, p_value
from tests.engine.prompts import prompts
from tests.engine_sglang.fastmtp import SteppedLoop
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import Answer, SGLangServer, drafting, texts
from tests.statistics import REJECT_BELOW
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_models import make_target

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
DRAFTS, VOCABULARY = 3, 258
SAMPLES, TOGETHER = 3000, 500
SMALL, CAPITAL = "it was the best of ", "IT WAS THE WORST OF "
SIZE = 60  # tokens of a draft vocabulary
LARGE = ("--max-total-tokens", "16384", "--max-running-requests", "128")
CHUNKS = ("--chunked-prefill-size", "48")
# Steps that overlap or not, pages of 1 or 16: each with a vocabulary.
KINDS = {
    "whole vocabulary": CHUNKS,
    "by language, synchronous, pages of 16": (*CHUNKS, "--page-size", "16", "--disable-overlap-schedule"),
}


class Served(NamedTuple):
    """A server, the file of its drafts, and the same without an engine."""

    server: SGLangServer
    drafts: Path
    loop: SteppedLoop


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny random target and an untrained drafter for it."""
    folder = tmp_path_factory.mktemp("fastmtp")
    target = make_target(folder / "target", seed=3)
    make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    return Models(target, make_fastmtp(folder / "drafter", target), DRAFTS)


def serve(fast: Models, log: Path, plugin: str, *arguments: str) -> SGLangServer:
    """A server with a test's plugin."""
    variables = {"RECORDED_DRAFTS": str(log.with_name("drafts"))}
    options = (*LARGE, *drafting(fast.drafter, *arguments))
    return SGLangServer(fast.target, log, *options, path=[SUPPORT / plugin], variables=variables)


def token_map(fast: Models, language: str) -> tuple[str, str]:
    """The argument for draft vocabularies."""
    return "--speculative-token-map", f"{fast.target.parent / 'vocabulary.json'}?size={SIZE}&language={language}"


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest, fast: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Without draft vocabularies, then with them."""
    folder, arguments, vocabularies = tmp_path_factory.mktemp("served"), KINDS[request.param], None
    if request.param.startswith("by language"):
        arguments += token_map(fast, "auto")
        values = {"vocabulary": str(fast.target.parent / "vocabulary.json"), "size": SIZE}
        vocabularies = open_vocabularies(values, fast.drafter, VOCABULARY)
    with serve(fast, folder / "log", "recorded_drafts", *arguments) as server:
        yield Served(server, folder / "drafts", SteppedLoop(fast.target, fast.drafter, vocabularies))


@pytest.fixture(scope="module")
def exact(fast: Models) -> JointReference:
    """The target in transformers."""
    return JointReference(fast.target)


def recorded(served: Served, answers: list[Answer]) -> list[list[list[int]]]:
    """The drafts of each request, step by step."""
    steps = [json.loads(line) for line in served.drafts.read_text().splitlines()]
    ids = [answer["meta_info"]["id"] for answer in answers]
    return [[step[name] for step in steps if name in step] for name in ids]


def test_drafts_are_those_of_the_plain_loop(served: Served) -> None:
    asked = [prompt[: 8 + i % 70] for i, prompt in enumerate(prompts(100))]
    asked = [prompt.upper() if i % 4 > 1 else prompt for i, prompt in enumerate(asked)]
    answers = [served.server.generate(prompt, max_new_tokens=16, ignore_eos=True) for prompt in asked[::2]]
    answers += served.server.generate_all(asked[1::2], 8, max_new_tokens=16, ignore_eos=True)
    steps = 0
    for prompt, found in zip([*asked[::2], *asked[1::2]], recorded(served, answers), strict=True):
        expected = served.loop.drafts(list(prompt.encode()), 16, DRAFTS)
        assert found[: len(expected)] == expected
        steps += len(expected)
    assert steps > 800
    if served.loop.vocabularies is not None:  # both languages, many times
        assert min(served.loop.used[0], served.loop.used[1]) > 50


def test_greedy_texts(served: Served, exact: JointReference) -> None:
    expected = [exact.greedy(list(prompt.encode()), 48) for prompt in prompts(12)]
    for together in (1, 8):
        answers = served.server.generate_all(prompts(12), together, max_new_tokens=48, ignore_eos=True)
        assert texts(answers) == expected
        assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) > 20


def sample(server: SGLangServer, prompt: str, sampling: JointSampling) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    request = {"max_new_tokens": LENGTH, "ignore_eos": True, "n": TOGETHER, **sampling._asdict()}
    batches = [server.generate(prompt, **request) for _ in range(SAMPLES // TOGETHER)]
    return [tuple(text) for batch in batches for text in texts(batch)]


def p_value_of(found: list[Window], exact: JointReference, prompt: str, sampling: JointSampling) -> float:
    """Of these windows, under the target's exact distribution."""
    expected = cells(exact, list(prompt.encode()), sampling, len(found))  # type: ignore[arg-type]
    assert len(expected) > 10
    return p_value(found, expected)


def test_languages_and_temperatures_in_one_batch(served: Served, exact: JointReference) -> None:
    asked = [(SMALL, JointSampling()), (CAPITAL, JointSampling(0.6)), (CAPITAL, JointSampling(1.0, 20, 0.9))]
    greedy = prompts(4)
    with ThreadPoolExecutor(4) as pool:
        sampled = [pool.submit(sample, served.server, *one) for one in asked]
        answers = pool.submit(served.server.generate_all, greedy * 4, 4, max_new_tokens=48, ignore_eos=True)
    expected = [exact.greedy(list(prompt.encode()), 48) for prompt in greedy] * 4
    assert texts(answers.result()) == expected
    for one, found in zip(asked, sampled, strict=True):
        assert p_value_of(found.result(), exact, *one) > REJECT_BELOW


def test_a_misstated_draft_distribution_fails(fast: Models, exact: JointReference, tmp_path: Path) -> None:
    with serve(fast, tmp_path / "log", "misstated_draft", *token_map(fast, "letters")) as server:
        found = sample(server, SMALL, JointSampling())
    assert p_value_of(found, exact, SMALL, JointSampling()) < REJECT_BELOW
    assert "the head's rows of them take" in (tmp_path / "log").read_text()
