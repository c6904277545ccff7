"""Sampled text has exactly the target's distribution; a drafter that misstates its own is found out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, Window, cells, p_value
from tests.engine_sglang.conftest import LARGE
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import SGLangServer, drafting, texts
from tests.statistics import REJECT_BELOW

pytestmark = pytest.mark.engine
PROMPT = "It was the best of "
SAMPLES, TOGETHER = 4000, 500
SUPPORT = Path(__file__).parents[1] / "support"
SAMPLINGS = {
    "T=1": JointSampling(),
    "T=0.5": JointSampling(temperature=0.5),
    "top-k": JointSampling(top_k=12),
    "top-p": JointSampling(top_p=0.8),
    "min-p": JointSampling(min_p=0.1),
    "all four": JointSampling(0.8, 20, 0.9, 0.02),
}


def sample(server: SGLangServer, sampling: JointSampling) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    request = {"n": TOGETHER, "max_new_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    answers = [texts(server.generate(PROMPT, **request)) for _ in range(SAMPLES // TOGETHER)]
    return [tuple(text) for batch in answers for text in batch]


@pytest.mark.parametrize("drafted", ["chain", "tree, synchronous"], indirect=True)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_joint_of_the_first_tokens(drafted: SGLangServer, reference: JointReference, name: str) -> None:
    expected = cells(reference, list(PROMPT.encode()), SAMPLINGS[name], SAMPLES)  # type: ignore[arg-type]
    assert len(expected) > 10
    assert p_value(sample(drafted, SAMPLINGS[name]), expected) > REJECT_BELOW


@pytest.fixture(scope="module")
def misstating(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    """A server whose drafter claims a uniform distribution for tokens that it drew from its circuit."""
    log = tmp_path_factory.mktemp("misstating") / "log"
    with SGLangServer(
        models.target, log, *LARGE, *drafting(models.drafter), path=[SUPPORT / "misstated_draft"]
    ) as server:
        yield server


def test_a_misstated_draft_distribution_fails(misstating: SGLangServer, reference: JointReference) -> None:
    expected = cells(reference, list(PROMPT.encode()), SAMPLINGS["T=1"], SAMPLES)  # type: ignore[arg-type]
    assert p_value(sample(misstating, SAMPLINGS["T=1"]), expected) < REJECT_BELOW
