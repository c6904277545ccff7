"""Two tensor-parallel ranks through `sglang.launch_server`.

Their text is the same, and so are the drafts on both, though the
second one's states are off by an ulp.

Processes of SGLang's own, and Ray's actors: all draft methods where `--thorough` asks for them.  Few requests: two
ranks on two cores wait for each other busily.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc.token_map import vocabulary_values
from tests.engine.cluster import cluster
from tests.engine.conftest import Models
from tests.engine.prompts import in_two_languages, prompts
from tests.engine.server import alone
from tests.engine_sglang.conftest import LARGE, SYNCHRONOUS
from tests.engine_sglang.loop import SteppedLoop
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.server import CORES, RANKS, SGLangServer, drafting
from tests.support.on_ranks import METHODS, SIZE, VOCABULARY, each
from tests.support.random_fastmtp import make_vocabulary
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("off_by_an_ulp", "recorded_drafts", "hybrid", "misstated_draft")]
FILES = {"RECORDED_DRAFTS": "drafts", "STATED_DRAFTS": "stated", "MISSTATED_DRAFTS": "misstate"}  # of plugins
LENGTH, ASKED = 24, 4
RAY = "ray"


class Served(NamedTuple):
    """Two ranks, the models, the token map, and the folder with the file of the first rank's drafts.

    That of the second one's has ``.1`` after its name.
    """

    server: SGLangServer
    models: Models
    token_map: str
    folder: Path


def token_map(folder: Path) -> str:
    """Draft vocabularies of two languages."""
    return f"{make_vocabulary(folder / 'vocabulary.json', VOCABULARY)}?size={SIZE}&adaptive=false"


@contextmanager
def serving(target: Path, folder: Path, *arguments: str, way: str = "") -> Iterator[SGLangServer]:
    """On two ranks; way: `RAY` for a cluster of their own, whose processes have the variables of the plugins."""
    variables = {name: str(folder / file) for name, file in FILES.items()}
    with ExitStack() as stack:
        stack.enter_context(alone())
        if way == RAY:
            nodes = stack.enter_context(cluster())
            nodes.start(2, PLUGINS, variables | CORES)
            variables, arguments = variables | nodes.variables, (*arguments, "--use-ray")
        log = folder / "log"
        yield stack.enter_context(
            SGLangServer(target, log, *LARGE, *RANKS, *arguments, path=PLUGINS, variables=variables)
        )


@contextmanager
def drafted(method: str, folder: Path, way: str) -> Iterator[Served]:
    """The server of a drafter."""
    models, file = METHODS[method](folder)
    words = "?adaptive=false" if file is None else f"{file}?size={SIZE}&adaptive=false"
    mapped = (*((SYNCHRONOUS,) if file is not None else ()), "--speculative-token-map", words)
    arguments = drafting(models.drafter, "--speculative-num-steps", str(models.drafts), *mapped)
    with serving(models.target, folder, *arguments, way=way) as server:
        yield Served(server, models, words, folder)


@pytest.fixture(scope="module", params=each(ways=("", RAY)))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Each drafter's in turn."""
    method, way = request.param
    with drafted(method, tmp_path_factory.mktemp("ranks"), way) as made:
        yield made


def recorded(folder: Path, name: str) -> list[list[int]]:
    """The drafts of a request, as the first rank has recorded them."""
    steps = [json.loads(line) for line in (folder / "drafts").read_text().splitlines()]
    return [step[name] for step in steps if name in step]


def test_texts_and_drafts_are_those_of_one_rank(served: Served) -> None:
    target, drafter, drafts = served.models
    values = vocabulary_values(served.token_map)
    vocabularies = open_vocabularies(values, drafter, VOCABULARY) if values else None
    exact, loop = JointReference(target), SteppedLoop(target, drafter, vocabularies)
    for prompt in in_two_languages(ASKED):
        answer, ids = served.server.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True), list(prompt.encode())
        assert answer["output_ids"] == exact.greedy(ids, LENGTH)
        expected = loop.drafts(ids, LENGTH, drafts)
        assert recorded(served.folder, answer["meta_info"]["id"])[: len(expected)] == expected
    assert vocabularies is None or min(loop.used[0], loop.used[1]) > 5


def test_ranks_draft_the_same(served: Served) -> None:
    assert_ranks_draft_the_same(served.folder, lambda: ask_for_sampled_texts(served.server))


def ask_for_sampled_texts(server: SGLangServer) -> None:
    """Several."""
    server.generate(prompts(1)[0], max_new_tokens=LENGTH, ignore_eos=True, temperature=1.0, n=8)
