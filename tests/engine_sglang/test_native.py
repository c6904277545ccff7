"""Draft vocabularies of SGLang's own draft layers through `sglang.launch_server`: text and law, drafts by language.

The draft layers are random: what tests a rule is that half of the drafts are rejected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.exact import LENGTH, cells, p_value
from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import LARGE
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import SGLangServer, texts
from tests.oracles.request_languages import RequestLanguages
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_mimo import make_mimo
from tests.support.random_models import make_target
from tests.support.random_native import make_eagle

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("recorded_drafts", "misstated_draft")]
SAMPLES, TOGETHER = 3000, 500
SMALL, CAPITAL = "it was the best of ", "IT WAS THE WORST OF "
SAMPLED = [(SMALL, JointSampling()), (CAPITAL, JointSampling(0.6)), (CAPITAL, JointSampling(1.0, 20, 0.9))]
VOCABULARY, SIZE = 258, 60


class Case(NamedTuple):
    """What is served."""

    target: Path
    plain: Path  # the target for transformers
    draft: Path
    arguments: tuple[str, ...]
    chain: bool = True


def nextn(folder: Path) -> Case:
    """The MTP layer in a MiMo checkpoint, with stated distributions."""
    made = make_mimo(folder)
    how = ("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4", "--trust-remote-code")
    arguments = ("--speculative-algorithm", "NEXTN", "--speculative-use-rejection-sampling", *how)
    return Case(made.target, made.plain, made.target, arguments)


def eagle(folder: Path) -> Case:
    """A layer in a directory of its own, trees, which the target's own choices verify."""
    target = make_target(folder / "target", seed=3)
    draft = make_eagle(folder / "eagle", target, sglang=True)
    how = ("--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "8")
    return Case(target, target, draft, ("--speculative-algorithm", "EAGLE", *how), chain=False)


CASES = {"NEXTN, MiMo": nextn, "EAGLE, tree": eagle}


class Served(NamedTuple):
    """A case, its server, the target in transformers, and the folder of all files."""

    case: Case
    server: SGLangServer
    exact: JointReference
    folder: Path


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a layout."""
    folder = tmp_path_factory.mktemp("native")
    case = CASES[request.param](folder)
    file = make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    with SGLangServer(
        case.target,
        folder / "log",
        *LARGE,
        *("--speculative-draft-model-path", str(case.draft), "--speculative-num-steps", "3"),
        *("--speculative-token-map", f"{file}?size={SIZE}"),
        *case.arguments,
        path=PLUGINS,
        variables={"RECORDED_DRAFTS": str(folder / "drafts"), "MISSTATED_DRAFTS": str(folder / "misstate")},
    ) as server:
        yield Served(case, server, JointReference(case.plain), folder)


def test_each_step_drafts_from_the_vocabulary_of_its_text(served: Served) -> None:
    values = {"vocabulary": str(served.folder / "vocabulary.json"), "size": SIZE}
    vocabularies = open_vocabularies(values, served.folder, VOCABULARY)
    assert vocabularies is not None and vocabularies.detector is not None
    languages, ids = RequestLanguages(vocabularies.detector), [set(ids.tolist()) for ids in vocabularies.ids]
    asked = [prompt.upper() if i % 4 > 1 else prompt for i, prompt in enumerate(prompts(30))]
    answers = served.server.generate_all(asked, 8, max_new_tokens=16, ignore_eos=True)
    steps = [json.loads(line) for line in (served.folder / "drafts").read_text().splitlines()]
    used = Counter[int]()
    for prompt, answer in zip(asked, answers, strict=True):
        name, emitted = answer["meta_info"]["id"], answer["output_ids"]
        assert emitted == served.exact.greedy(list(prompt.encode()), 16)
        drafted = [set(step[name]) for step in steps if name in step]
        # A step's drafts but the first are chosen by what is known then, the first by what was known a step before.
        numbers = [languages.choose(name, [*prompt.encode(), *emitted[:known]]) for known in range(len(emitted) + 1)]
        for tokens in drafted:
            assert any(tokens <= ids[number] | ids[other] for number in numbers for other in numbers)
        if len(set(numbers)) == 1:
            assert all(tokens <= ids[numbers[0]] for tokens in drafted)
            used[numbers[0]] += len(drafted)
    assert min(used[0], used[1]) > 10


def test_greedy_texts(served: Served) -> None:
    asked = prompts(12)
    answers = served.server.generate_all(asked, 8, max_new_tokens=48, ignore_eos=True)
    assert texts(answers) == [served.exact.greedy(list(prompt.encode()), 48) for prompt in asked]
    assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) > 0


def sampled(served: Served, prompt: str, sampling: JointSampling, drawn: JointSampling | None = None) -> float:
    """The p-value of the first tokens of continuations under the target's exact distribution."""
    request = {"max_new_tokens": LENGTH, "ignore_eos": True, "n": TOGETHER, **(drawn or sampling)._asdict()}
    batches = [served.server.generate(prompt, **request) for _ in range(SAMPLES // TOGETHER)]
    table = cells(served.exact, list(prompt.encode()), sampling, SAMPLES)  # type: ignore[arg-type]
    assert len(table) > 10
    return p_value([tuple(text) for batch in batches for text in texts(batch)], table)


def test_languages_and_temperatures_in_one_batch(served: Served) -> None:
    with ThreadPoolExecutor(len(SAMPLED)) as pool:
        assert min(pool.map(lambda one: sampled(served, *one), SAMPLED)) > REJECT_BELOW


def test_what_is_not_the_targets_fails(served: Served) -> None:
    """A misstated distribution, or where none is stated, another temperature."""
    prompt, sampling = SAMPLED[0]
    if not served.case.chain:
        assert sampled(served, prompt, sampling, JointSampling(0.8)) < REJECT_BELOW
        return
    switch = served.folder / "misstate"
    switch.touch()
    try:
        assert sampled(served, prompt, sampling) < REJECT_BELOW
    finally:
        switch.unlink()


def test_the_log_tells_the_draft_vocabularies(served: Served) -> None:
    assert "drafting from letters (60 tokens), capitals (60 tokens), together (" in (served.folder / "log").read_text()
