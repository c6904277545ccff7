"""Two tensor-parallel ranks through `vllm serve`, as README writes it.

Their text is the same, and so are the drafts on both,
though the second one's states are off by an ulp.

Processes of vLLM's own, and Ray's workers with both of vLLM's executors: all draft methods where `--thorough` asks
for them.  Few requests: two ranks on two cores wait for each other busily.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.cluster import Cluster, cluster
from tests.engine.exact import Reference
from tests.engine.loop import Loop
from tests.engine.prompts import in_two_languages, prompts
from tests.engine.ranks import EXECUTORS, WITH_RAY, Served, serving
from tests.engine.server import Server, tokens
from tests.support.on_ranks import VOCABULARY, each
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = pytest.mark.engine
LENGTH, ASKED = 24, 4
OFTEN = ("hybrid, ray",)


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    """One machine with two devices."""
    with cluster() as made:
        made.start(2, WITH_RAY)
        yield made


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


def ask_for_sampled_texts(server: Server) -> None:
    """Several."""
    server.complete(prompts(1)[0], max_tokens=LENGTH, ignore_eos=True, temperature=1.0, n=8)
