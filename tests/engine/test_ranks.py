"""Two tensor-parallel ranks through `vllm serve`, as README writes it: the same text, and the same drafts on both,
though the second one's states are off by an ulp.

Few requests: two ranks on two cores wait for each other busily.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import Reference
from tests.engine.loop import Loop
from tests.engine.prompts import in_two_languages, prompts
from tests.engine.server import Server, alone, speculative_config, tokens
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_hybrid import make_hybrid
from tests.support.random_models import make_drafter, make_target
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("off_by_an_ulp", "recorded_drafts", "hybrid")]
LENGTH, ASKED = 24, 4


RANKS, CORES = ("--tensor-parallel-size", "2"), {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
VOCABULARY, SIZE = 258, 120


class Served(NamedTuple):
    """Two ranks, the models, settings of the draft vocabulary, and the folder with the file of the first rank's drafts.

    That of the second one's has ``.1`` after its name.
    """

    server: Server
    models: Models
    vocabulary: dict[str, Any]
    folder: Path


def mtpc(folder: Path) -> tuple[Models, dict[str, Any]]:
    """A window part, whole on each rank."""
    target = make_target(folder / "target", seed=3)
    return Models(target, make_drafter(folder / "drafter", target), 5), {}


def hybrid(folder: Path) -> tuple[Models, dict[str, Any]]:
    """Both parts, the serial one and the rows of the draft vocabularies shared out over the ranks."""
    target = make_target(folder / "target", seed=3)
    file = make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    return Models(target, make_hybrid(folder / "drafter", target), 4), {"vocabulary": str(file), "size": SIZE}


CASES = {"mtpc": mtpc, "hybrid": hybrid}


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    folder = tmp_path_factory.mktemp("ranks")
    models, vocabulary = CASES[request.param](folder)
    additional = ("--additional-config", json.dumps({"mtpc": vocabulary}))
    arguments = (*RANKS, *speculative_config(models.drafter, models.drafts), *additional)
    variables = {"RECORDED_DRAFTS": str(folder / "drafts"), "STATED_DRAFTS": str(folder / "stated"), **CORES}
    with (
        alone(),
        Server(models.target, folder / "log", *CAPACITY, *arguments, path=PLUGINS, variables=variables) as server,
    ):
        yield Served(server, models, vocabulary, folder)


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
    assert vocabularies is None or min(loop.used[0], loop.used[1]) > 5


def test_ranks_draft_the_same(served: Served) -> None:
    assert_ranks_draft_the_same(served.folder, lambda: ask_for_sampled_texts(served.server))


def ask_for_sampled_texts(server: Server) -> None:
    """Several."""
    server.complete(prompts(1)[0], max_tokens=LENGTH, ignore_eos=True, temperature=1.0, n=8)
