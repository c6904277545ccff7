"""Prompt lookup with vLLM's own drafters in the engine: outputs, their distribution, and drafts of the mixture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine import test_native as native
from tests.engine.conftest import Models
from tests.engine.exact import Reference, Sampling, cells, p_value
from tests.engine.native_drafts import DraftModel, Eagle, Model, greedy_drafts
from tests.engine.prompts import in_two_languages
from tests.engine.server import tokens
from tests.engine.test_runner_v2 import session
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_mimo import make_mimo
from tests.support.random_models import make_target
from tests.support.random_native import make_draft_model, make_eagle, make_eagle3

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
VOCABULARY, DRAFTS, LENGTH, SAMPLES = 258, 3, 24, 300
SAMPLING = Sampling(temperature=0.5)  # on Model Runner V2: few likely windows, so that few samples tell much
SAMPLINGS = [Sampling(temperature=0.9), Sampling(temperature=1.0, top_k=100)]


class Case(NamedTuple):
    """What is served: the target, the same for transformers, and the drafter."""

    target: Path
    plain: Path
    method: str
    drafter: Path


def eagle(folder: Path) -> Case:
    """A layer after the target's last one, whose loop vLLM captures."""
    target = make_target(folder / "target")
    drafter = make_eagle(folder / "drafter", target)
    return Case(target, target, "eagle", drafter)


def draft_model(folder: Path) -> Case:
    """A model of its own."""
    target = make_target(folder / "target")
    drafter = make_draft_model(folder / "drafter", target)
    return Case(target, target, "draft_model", drafter)


def mimo(folder: Path) -> Case:
    """The MTP layer of a MiMo checkpoint."""
    made = make_mimo(folder)
    return Case(made.target, made.plain, "mtp", made.target)


def eagle3(folder: Path) -> Case:
    """An EAGLE-3 layer with a draft vocabulary of its own."""
    target = make_target(folder / "target", layers=4)
    drafter = make_eagle3(folder / "drafter", target, [1, 2, 3], [*range(0, VOCABULARY, 2)])
    return Case(target, target, "eagle3", drafter)


CASES = {"eagle": eagle, "draft_model": draft_model, "mtp": mimo, "eagle3": eagle3}
# Drafters whose drafts are computed anew, in the folder of their case.
MODELS: dict[str, Callable[[Path], Model]] = {
    "eagle": lambda folder: Eagle(folder / "target", folder / "drafter"),
    "draft_model": lambda folder: DraftModel(folder / "drafter"),
}


def asked_of(exact: Reference) -> list[list[int]]:
    """Prompts of two languages in which the tokens that are likely to come next have been before."""
    prompts = [list(prompt.encode())[:20] for prompt in in_two_languages(6)]
    return [prompt + exact.next_probs([prompt], SAMPLING)[0].topk(6).indices.tolist() + prompt for prompt in prompts]


class CopyingResult(NamedTuple):
    """What a session on Model Runner V2 printed, and what was asked of it."""

    case: Case
    prompts: list[list[int]]
    settings: dict[str, Any]
    output: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module", params=CASES)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CopyingResult:
    """Greedy texts of two languages and samples, with draft vocabularies and prompt lookup; its graphs are replayed."""
    folder = tmp_path_factory.mktemp(request.param)
    case = CASES[request.param](folder)
    prompts, file = asked_of(Reference(case.plain)), make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    settings = {} if case.method == "eagle3" else {"vocabulary": str(file), "size": 60}
    arguments = ["--method", case.method, "--record", str(folder / "drafts"), "--greedy-length", str(LENGTH)]
    arguments += ["--switch", str(folder / "switch"), "--samples", str(SAMPLES), "--replay"]
    arguments += ["--temperature", str(SAMPLING.temperature)]
    arguments += ["--additional", json.dumps({"mtpc": settings | {"copy": True}})]
    return CopyingResult(
        case, prompts, settings, session(Models(case.target, case.drafter, DRAFTS), prompts, *arguments), folder
    )


def test_greedy_text(result: CopyingResult) -> None:
    exact = Reference(result.case.plain)
    assert result.output["greedy"] == [exact.greedy(prompt, LENGTH) for prompt in result.prompts]
    assert result.output["copied"][0] > 2 * len(result.prompts)
    assert result.output["replays"] > 5


def test_drafts_are_those_of_the_mixture(result: CopyingResult) -> None:
    if result.case.method not in MODELS:
        pytest.skip("its drafts are not computed anew")
    vocabularies = open_vocabularies(result.settings, result.folder, VOCABULARY)
    union = None if vocabularies is None else vocabularies.union()
    assert vocabularies is not None and union is not None
    vocabularies.ids = (*vocabularies.ids[:-1], *union.ids)  # what a request without language drafts from
    expected, outside, model = Counter[tuple[int, ...]](), 0, MODELS[result.case.method](result.folder)
    for prompt, text in zip(result.prompts, result.output["greedy"], strict=True):
        drafts, more = greedy_drafts(model, prompt, text, DRAFTS, vocabularies)
        expected.update(drafts)
        outside += more
    lines = (result.folder / "drafts").read_text().splitlines()
    recorded = Counter(tuple(draft) for line in lines for draft in json.loads(line))
    assert expected <= recorded
    assert recorded.total() - expected.total() <= 2 * len(result.prompts)
    assert outside > 5


@pytest.mark.parametrize("name", ["samples", "misstated"])
def test_joint_of_the_first_tokens(result: CopyingResult, name: str) -> None:
    table = cells(Reference(result.case.plain), result.prompts[0], SAMPLING, SAMPLES)
    assert len(table) > 10
    p = p_value([tuple(window) for window in result.output[name]], table)
    assert (p < REJECT_BELOW) == (name == "misstated")


def served_case(name: str) -> Callable[[Path], native.Case]:
    """Makes a case as `tests.engine.test_native` serves it."""

    def make(folder: Path) -> native.Case:
        case = CASES[name](folder)
        model = {} if case.method == "mtp" else {"model": str(case.drafter)}
        return native.Case(case.target, case.plain, {"method": case.method} | model)

    return make


class OnV1(NamedTuple):
    """A server on the V1 runner, and the method of its drafter."""

    method: str
    served: native.Served


@pytest.fixture(scope="module", params=CASES)
def on_v1(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnV1]:
    """Of EAGLE-3 without other draft vocabularies; of MTP with draft lengths that are chosen by their cost."""
    folder, method = tmp_path_factory.mktemp(request.param), request.param
    section = {"copy": True, "adaptive": method == "mtp"}
    if method != "eagle3":
        section |= {"vocabulary": str(folder / "vocabulary.json"), "size": native.SIZE}
    with native.serving(folder, make=served_case(method), section=section) as served:
        yield OnV1(method, served)


def test_greedy_texts_on_the_v1_runner(on_v1: OnV1) -> None:
    """In one batch."""
    method, served = on_v1
    prompts = asked_of(served.exact)
    emitted = tokens(served.server.complete(prompts, max_tokens=LENGTH, ignore_eos=True))
    assert emitted == [served.exact.greedy(prompt, LENGTH) for prompt in prompts]
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > 0
    log = (served.folder / "log").read_text()
    assert ("relative cost of a decoding step by tokens" in log) == (method == "mtp")


def test_drafts_on_the_v1_runner_are_those_of_the_mixture(on_v1: OnV1) -> None:
    method, served = on_v1
    if method not in MODELS:
        pytest.skip("its drafts are not computed anew")
    file, model, outside = served.folder / "drafts", MODELS[method](served.folder), 0
    values = {"vocabulary": str(served.folder / "vocabulary.json"), "size": native.SIZE}
    vocabularies = open_vocabularies(values, served.folder, VOCABULARY)
    for prompt in asked_of(served.exact):
        before = len(file.read_text().splitlines()) if file.exists() else 0
        (emitted,) = tokens(served.server.complete(prompt, max_tokens=LENGTH, ignore_eos=True))
        expected, more = greedy_drafts(model, prompt, emitted, DRAFTS, vocabularies, ragged=True)
        recorded = [tuple(json.loads(line)[0]) for line in file.read_text().splitlines()[before:]]
        assert recorded[: len(expected)] == expected
        outside += more
    assert outside > 5


@pytest.mark.parametrize("honest", [True, False])
def test_languages_and_temperatures_in_one_batch(on_v1: OnV1, honest: bool) -> None:
    """As a control, misstated drafts give outputs that do not have the target's distribution."""
    served = on_v1.served
    if on_v1.method == "mtp" and not honest:
        pytest.skip("a random layer is not worth its time, so nothing is drafted that could be misstated")
    switch, prompts = served.folder / "misstate", asked_of(served.exact)[:2]
    if not honest:
        switch.touch()
    with ThreadPoolExecutor(2) as pool:
        p = list(pool.map(lambda asked: native.sampled(served, *asked), zip(prompts, SAMPLINGS, strict=True)))
    switch.unlink(missing_ok=True)
    assert (min(p) > REJECT_BELOW) == honest, p
