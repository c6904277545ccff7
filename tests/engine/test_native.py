"""Draft vocabularies of vLLM's own drafters through `vllm serve`: the target's text and law, drafts by language.

The draft layers are random: what tests a rule is that half of the drafts are rejected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.statistics.chi_square import REJECT_BELOW
from mtpc.vocabulary.requests import RequestLanguages
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.prompts import prompts
from tests.engine.server import Server, tokens
from tests.engine.test_runner_v2 import PROMPTS, session
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_mimo import make_mimo
from tests.support.random_models import make_target
from tests.support.random_native import make_draft_model

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("recorded_drafts", "misstated_draft")]
SAMPLES = 3000
SMALL, CAPITAL = "it was the best of ", "IT WAS THE WORST OF "
SAMPLED = [(SMALL, Sampling()), (CAPITAL, Sampling(0.6, 20, 0.9))]
VOCABULARY, SIZE, DRAFTS = 258, 120, 3


class Case(NamedTuple):
    """What is served."""

    target: Path
    plain: Path  # the target for transformers
    settings: dict[str, Any]  # of drafting
    arguments: tuple[str, ...] = ()


def mtp(folder: Path) -> Case:
    """The MTP layer in a MiMo checkpoint."""
    made = make_mimo(folder)
    return Case(made.target, made.plain, {"method": "mtp"}, ("--trust-remote-code",))


def draft_model(folder: Path) -> Case:
    """A whole model, with a head of its own over the target's tokens."""
    target = make_target(folder / "target", seed=3)
    return Case(target, target, {"method": "draft_model", "model": str(make_draft_model(folder / "draft", target))})


CASES = {"mtp, MiMo": mtp, "draft_model": draft_model}


class Served(NamedTuple):
    """A server, the target in transformers, and the folder of all files."""

    server: Server
    exact: Reference
    folder: Path


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a layout."""
    folder = tmp_path_factory.mktemp("native")
    case = CASES[request.param](folder)
    drafting = {**case.settings, "num_speculative_tokens": DRAFTS, "draft_sample_method": "probabilistic"}
    file = make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    with Server(
        case.target,
        folder / "log",
        *CAPACITY,
        *("--speculative-config", json.dumps(drafting)),
        *("--additional-config", json.dumps({"mtpc": {"vocabulary": str(file), "size": SIZE}})),
        *case.arguments,
        path=PLUGINS,
        variables={"RECORDED_DRAFTS": str(folder / "drafts"), "MISSTATED_DRAFTS": str(folder / "misstate")},
    ) as server:
        yield Served(server, Reference(case.plain), folder)


def test_each_step_drafts_from_the_vocabulary_of_its_text(served: Served) -> None:
    file, used = served.folder / "drafts", Counter[int]()
    values = {"vocabulary": str(served.folder / "vocabulary.json"), "size": SIZE}
    vocabularies = open_vocabularies(values, served.folder, VOCABULARY)
    assert vocabularies is not None and vocabularies.detector is not None
    languages, ids = RequestLanguages(vocabularies.detector), [set(ids.tolist()) for ids in vocabularies.ids]
    for i, prompt in enumerate(prompts(30)):
        prompt = prompt.upper() if i % 2 else prompt
        before = len(file.read_text().splitlines()) if file.exists() else 0
        said = tokens(served.server.complete(prompt, max_tokens=16, ignore_eos=True))[0]
        assert said == served.exact.greedy(list(prompt.encode()), 16)
        known = 1
        for line in file.read_text().splitlines()[before:]:
            (drafted,) = json.loads(line)
            number = languages.choose(str(i), [*prompt.encode(), *said[:known]])
            assert set(drafted) <= ids[number]
            used[number] += 1
            right = [one == other for one, other in zip(drafted, said[known:], strict=False)]
            known += ([*right, False]).index(False) + 1
    assert min(used[0], used[1]) > 50


def test_greedy_texts(served: Served) -> None:
    asked = prompts(12)
    accepted = served.server.metric("vllm:spec_decode_num_accepted_tokens_total")
    answer = served.server.complete(asked, max_tokens=48, ignore_eos=True)
    assert tokens(answer) == [served.exact.greedy(list(prompt.encode()), 48) for prompt in asked]
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > accepted


def sampled(served: Served, prompt: str, sampling: Sampling) -> float:
    """The p-value of the first tokens of continuations under the target's exact distribution."""
    body = {"n": SAMPLES // 8, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    answers = [served.server.complete(prompt, **body) for _ in range(8)]
    table = cells(served.exact, list(prompt.encode()), sampling, SAMPLES)
    assert len(table) > 10
    return p_value([tuple(choice) for answer in answers for choice in tokens(answer)], table)


def test_languages_and_temperatures_in_one_batch(served: Served) -> None:
    with ThreadPoolExecutor(len(SAMPLED)) as pool:
        assert min(pool.map(lambda one: sampled(served, *one), SAMPLED)) > REJECT_BELOW


def test_a_misstated_draft_distribution_fails(served: Served) -> None:
    switch = served.folder / "misstate"
    switch.touch()
    try:
        assert sampled(served, *SAMPLED[0]) < REJECT_BELOW
    finally:
        switch.unlink()


def test_model_runner_v2(tmp_path: Path) -> None:
    """Where all languages are one draft vocabulary."""
    made, file = make_mimo(tmp_path), make_vocabulary(tmp_path / "vocabulary.json", VOCABULARY)
    settings = {"vocabulary": str(file), "size": 60}
    arguments = ("--method", "mtp", "--record", str(tmp_path / "drafts"), "--greedy-length", "12")
    models = Models(made.target, made.target, DRAFTS)
    output = session(models, PROMPTS, *arguments, "--additional", json.dumps({"mtpc": settings}))
    exact, vocabularies = Reference(made.plain), open_vocabularies(settings, tmp_path, VOCABULARY)
    assert output["greedy"] == [exact.greedy(prompt, 12) for prompt in PROMPTS]
    steps = [json.loads(line) for line in (tmp_path / "drafts").read_text().splitlines()]
    drafted = {token for step in steps for draft in step for token in draft}
    assert vocabularies is not None and drafted <= {token for ids in vocabularies.ids[:-1] for token in ids.tolist()}
    assert len(drafted) > 20


def test_the_log_tells_the_draft_vocabularies(served: Served) -> None:
    assert "drafting from letters (120 tokens), capitals (120 tokens), all" in (served.folder / "log").read_text()
