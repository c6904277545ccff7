"""Sampled text has exactly the target's distribution; a drafter that misstates its own is found out.

The models are random and tiny: half of the steps reject a draft, which is what tests a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, Window, cells, p_value
from tests.engine.server import Server, speculative_config, tokens
from tests.statistics import REJECT_BELOW

pytestmark = pytest.mark.engine
PROMPT = "It was the best of "
SAMPLES, TOGETHER = 6000, 1000
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def sampling_server(random_models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the untrained drafter."""
    log = tmp_path_factory.mktemp("sampling") / "log"
    arguments = speculative_config(random_models.drafter, random_models.drafts)
    with Server(random_models.target, log, *CAPACITY, *arguments) as server:
        yield server


def sample(server: Server, sampling: Sampling) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    body = {"n": TOGETHER, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    answers = [server.complete(PROMPT, **body) for _ in range(SAMPLES // TOGETHER)]
    return [tuple(choice) for answer in answers for choice in tokens(answer)]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=0.5), Sampling(top_k=12), Sampling(top_p=0.8), Sampling(0.8, 20, 0.9)],
    ids=["T=1", "T=0.5", "top-k", "top-p", "all three"],
)
def test_joint_of_the_first_tokens(sampling_server: Server, tiny_reference: Reference, sampling: Sampling) -> None:
    expected = cells(tiny_reference, list(PROMPT.encode()), sampling, SAMPLES)
    assert len(expected) > 10
    assert p_value(sample(sampling_server, sampling), expected) > REJECT_BELOW


@pytest.fixture(scope="module")
def misstating(random_models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose drafter claims a uniform distribution for tokens that it drew from its circuit."""
    log = tmp_path_factory.mktemp("misstating") / "log"
    arguments = speculative_config(random_models.drafter, random_models.drafts)
    with Server(random_models.target, log, *CAPACITY, *arguments, path=[SUPPORT / "misstated_draft"]) as server:
        yield server


def test_a_misstated_draft_distribution_fails(misstating: Server, tiny_reference: Reference) -> None:
    expected = cells(tiny_reference, list(PROMPT.encode()), Sampling(), SAMPLES)
    assert p_value(sample(misstating, Sampling()), expected) < REJECT_BELOW
