"""Draft vocabularies of vLLM's own drafters through `vllm serve`: the target's text and law, drafts by language.

The draft layers are random: what tests a rule is that half of the drafts are rejected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.prompts import in_two_languages, prompts
from tests.engine.server import Server, tokens
from tests.engine.test_runner_v2 import session
from tests.oracles.request_languages import RequestLanguages
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_mimo import make_mimo
from tests.support.random_native import make_draft_model
from tests.support.random_qwen3 import make_qwen3

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
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
    drafter: dict[str, Any]  # in vLLM's speculative settings


def mimo(folder: Path) -> Case:
    """The MTP layer of a MiMo checkpoint."""
    made = make_mimo(folder)
    return Case(made.target, made.plain, {"method": "mtp"})


def qwen3(folder: Path) -> Case:
    """A draft model for a mixture of experts."""
    target = make_qwen3(folder / "target", experts=True)
    return Case(target, target, {"method": "draft_model", "model": str(make_draft_model(folder / "draft", target))})


CASES = {"mtp, MiMo": mimo, "draft_model, Qwen3-MoE": qwen3}


class Served(NamedTuple):
    """A server of a case, the target in transformers, and the folder of all files."""

    server: Server
    exact: Reference
    folder: Path


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    make: Callable[[Path], Case] = mimo,
    section: Mapping[str, Any] | None = None,
    path: Sequence[Path] = PLUGINS,
    **variables: str,
) -> Iterator[Served]:
    """Serve a case; section: of additional-config, by default draft vocabularies."""
    made, file = make(folder), make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    section = {"vocabulary": str(file), "size": SIZE} if section is None else section
    drafting = {**made.drafter, "num_speculative_tokens": DRAFTS, "draft_sample_method": "probabilistic"}
    with Server(
        made.target,
        folder / "log",
        *CAPACITY,
        *("--trust-remote-code", "--speculative-config", json.dumps(drafting)),
        *("--additional-config", json.dumps({"mtpc": section})),
        *arguments,
        path=path,
        variables={"RECORDED_DRAFTS": str(folder / "drafts"), "MISSTATED_DRAFTS": str(folder / "misstate")} | variables,
    ) as server:
        yield Served(server, Reference(made.plain), folder)


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """On one rank."""
    with serving(tmp_path_factory.mktemp("native"), make=CASES[request.param]) as server:
        yield server


def vocabularies_used(served: Served, asked: list[str]) -> Counter[int]:
    """How often each draft vocabulary was drafted from in greedy texts, which are the target's; nothing else was."""
    file, used = served.folder / "drafts", Counter[int]()
    values = {"vocabulary": str(served.folder / "vocabulary.json"), "size": SIZE}
    vocabularies = open_vocabularies(values, served.folder, VOCABULARY)
    assert vocabularies is not None and vocabularies.detector is not None
    languages, ids = RequestLanguages(vocabularies.detector), [set(ids.tolist()) for ids in vocabularies.ids]
    for i, prompt in enumerate(asked):
        before = len(file.read_text().splitlines()) if file.exists() else 0
        emitted = tokens(served.server.complete(prompt, max_tokens=16, ignore_eos=True))[0]
        assert emitted == served.exact.greedy(list(prompt.encode()), 16)
        known = 1
        for line in file.read_text().splitlines()[before:]:
            (drafted,) = json.loads(line)
            number = languages.choose(str(i), [*prompt.encode(), *emitted[:known]])
            assert set(drafted) <= ids[number]
            used[number] += 1
            right = [one == other for one, other in zip(drafted, emitted[known:], strict=False)]
            known += ([*right, False]).index(False) + 1
    return used


def test_each_step_drafts_from_the_vocabulary_of_its_text(served: Served) -> None:
    used = vocabularies_used(served, in_two_languages(20))
    assert min(used[0], used[1]) > 30


def test_greedy_texts(served: Served) -> None:
    asked = prompts(12)
    accepted = served.server.metric("vllm:spec_decode_num_accepted_tokens_total")
    answer = served.server.complete(asked, max_tokens=48, ignore_eos=True)
    assert tokens(answer) == [served.exact.greedy(list(prompt.encode()), 48) for prompt in asked]
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > accepted


def sampled(served: Served, prompt: str | list[int], sampling: Sampling) -> float:
    """The p-value of the first tokens of continuations under the target's exact distribution."""
    body = {"n": SAMPLES // 8, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    answers = [served.server.complete(prompt, **body) for _ in range(8)]
    ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
    table = cells(served.exact, ids, sampling, SAMPLES)
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
    """The same there; what is stated of drafts is `tests/vllm_mtpc/native/test_speculator.py`'s."""
    made, file = make_mimo(tmp_path), make_vocabulary(tmp_path / "vocabulary.json", VOCABULARY)
    settings = {"vocabulary": str(file), "size": 60}
    asked = [list(prompt.encode())[:20] for prompt in in_two_languages(6)]
    arguments = ("--method", "mtp", "--record", str(tmp_path / "drafts"), "--greedy-length", "12")
    models = Models(made.target, made.target, DRAFTS)
    output = session(models, asked, *arguments, "--additional", json.dumps({"mtpc": settings}))
    exact, vocabularies = Reference(made.plain), open_vocabularies(settings, tmp_path, VOCABULARY)
    assert output["greedy"] == [exact.greedy(prompt, 12) for prompt in asked]
    steps = [json.loads(line) for line in (tmp_path / "drafts").read_text().splitlines()]
    assert vocabularies is not None
    ids = [set(ids.tolist()) for ids in vocabularies.ids[:2]]
    drafts = [draft for step in steps for draft in step]
    used = Counter(number for draft in drafts for number, own in enumerate(ids) if own.issuperset(draft))
    assert min(used[0], used[1]) > 15
    assert sum(used.values()) > 0.8 * len(drafts)  # the others' requests are of no language


def test_the_log_tells_the_draft_vocabularies(served: Served) -> None:
    assert "drafting from letters (120 tokens), capitals (120 tokens), all" in (served.folder / "log").read_text()
