"""Two tensor-parallel ranks through `vllm serve`, as README writes it: the same text, and the same drafts on both,
though the second one's states are off by an ulp.

Processes of vLLM's own, and Ray's workers with both of vLLM's executors for these: all families where `-m ray` asks for
them.  Few requests: two ranks on two cores wait for each other busily.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.cluster import Cluster, cluster
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import Reference
from tests.engine.loop import Loop
from tests.engine.prompts import in_two_languages, prompts
from tests.engine.server import Server, alone, speculative_config, tokens
from tests.support.on_ranks import FAMILIES, SIZE, VOCABULARY, each
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("off_by_an_ulp", "recorded_drafts", "hybrid")]
WITH_RAY = [*PLUGINS, SUPPORT / "misstated_draft", SUPPORT / "ray_on_cpu"]
LENGTH, ASKED = 24, 4


RANKS, CORES = ("--tensor-parallel-size", "2"), {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
FILES = {"RECORDED_DRAFTS": "drafts", "STATED_DRAFTS": "stated", "MISSTATED_DRAFTS": "misstate"}  # of plugins
TO_RAY = {"VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": ",".join(FILES)}
# What a server is told; None: it has processes of its own.
EXECUTORS: dict[str, dict[str, str] | None] = {
    "": None,
    "ray": TO_RAY | {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"},
    "ray, compiled": TO_RAY | {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0"},
}
OFTEN = ("mtpc", "hybrid", "mtpc, ray")


class Served(NamedTuple):
    """Two ranks, the models, settings of the draft vocabulary, and the folder with the file of the first rank's drafts.

    That of the second one's has ``.1`` after its name.
    """

    server: Server
    models: Models
    vocabulary: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    """One machine with two devices."""
    with cluster() as made:
        made.start(2, WITH_RAY)
        yield made


@contextmanager
def serving(
    family: str, executor: str, folder: Path, request: pytest.FixtureRequest, copied: int = 0
) -> Iterator[Served]:
    """The server of a drafter.  copied: tokens that a draft may go on with after the drafter's; 0: none is copied."""
    models, file = FAMILIES[family](folder)
    vocabulary = {} if file is None else {"vocabulary": str(file), "size": SIZE}
    copying = {"copy": True} if copied else {}
    arguments = [*RANKS, *speculative_config(models.drafter, models.drafts + copied)]
    arguments += ["--additional-config", json.dumps({"mtpc": vocabulary | copying})]
    variables = {name: str(folder / file) for name, file in FILES.items()} | CORES
    if (told := EXECUTORS[executor]) is not None:
        arguments += ["--distributed-executor-backend", "ray"]
        variables |= told | request.getfixturevalue("ray").variables
    with (
        alone(),
        Server(models.target, folder / "log", *CAPACITY, *arguments, path=WITH_RAY, variables=variables) as server,
    ):
        yield Served(server, models, vocabulary, folder)


@pytest.fixture(scope="module", params=each(OFTEN, tuple(EXECUTORS)))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    with serving(*request.param, tmp_path_factory.mktemp("ranks"), request) as made:
        yield made


def test_texts_and_drafts_are_those_of_one_rank(served: Served) -> None:
    file, (target, drafter, drafts) = served.folder / "drafts", served.models
    vocabularies = open_vocabularies(served.vocabulary, drafter, VOCABULARY) if served.vocabulary else None
    exact, loop = Reference(target), Loop(target, drafter, vocabularies)
    for prompt in in_two_languages(ASKED):
        before = len(file.read_text().splitlines()) if file.exists() else 0
        answer = served.server.complete(prompt, max_tokens=LENGTH, ignore_eos=True)
        ids = list(prompt.encode())
        assert tokens(answer)[0] == exact.greedy(ids, LENGTH)
        found = [json.loads(line)[0] for line in file.read_text().splitlines()[before:]]
        expected = loop.drafts(ids, LENGTH, drafts)
        assert found[: len(expected)] == expected
        assert len(found) <= len(expected) + 1  # after the text's last token: as many are accepted in a step
    assert vocabularies is None or min(loop.used[0], loop.used[1]) > 5


def test_ranks_draft_the_same(served: Served) -> None:
    assert_ranks_draft_the_same(served.folder, lambda: ask_for_sampled_texts(served.server))


def test_ranks_copy_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Drafts have lengths by what steps take, which each rank times for itself and is told by the first."""
    with serving("hybrid", "", tmp_path, request, copied=4) as served:
        exact, server, drafts = Reference(served.models.target), served.server, served.models.drafts
        asked = [prompt + prompt[:LENGTH] for prompt in prompts(ASKED)]
        answers = server.complete(asked, max_tokens=2 * LENGTH, ignore_eos=True)
        assert tokens(answers) == [exact.greedy(list(prompt.encode()), 2 * LENGTH) for prompt in asked]
        steps = [json.loads(line) for line in (tmp_path / "drafts").read_text().splitlines()]
        lengths = {len(draft) for rows in steps for draft in rows}
        assert max(lengths) > drafts > min(lengths)
        sampled = {"max_tokens": LENGTH, "ignore_eos": True, "temperature": 0.3}
        assert_ranks_draft_the_same(tmp_path, lambda: [server.complete(prompt, **sampled) for prompt in asked])


def ask_for_sampled_texts(server: Server) -> None:
    """Several."""
    server.complete(prompts(1)[0], max_tokens=LENGTH, ignore_eos=True, temperature=1.0, n=8)
