"""Sampled text has exactly the target's distribution; a drafter that misstates its own is found out.

The models are random and tiny: half of the steps reject a draft, which is what tests a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, Window, cells, p_value
from tests.engine_sglang.conftest import LARGE, TREE
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import Answer, SGLangServer, drafting, texts
from tests.statistics import REJECT_BELOW

pytestmark = pytest.mark.engine
PROMPT = "It was the best of "
SAMPLES, TOGETHER = 6000, 1000
SUPPORT = Path(__file__).parents[1] / "support"
SHAPES = {"chain": (), "tree": TREE}
REQUEST = {"max_new_tokens": LENGTH, "ignore_eos": True}
T1 = JointSampling()
SAMPLINGS = {
    "T=1": T1,
    "T=0.5": JointSampling(temperature=0.5),
    "top-k": JointSampling(top_k=12),
    "top-p": JointSampling(top_p=0.8),
    "all four": JointSampling(0.8, 20, 0.9, 0.02),
}


@pytest.fixture(scope="module", params=SHAPES)
def sampling(
    request: pytest.FixtureRequest, random_models: Models, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SGLangServer]:
    """A server that verifies chains by rejection sampling or trees."""
    arguments = drafting(random_models.drafter, *SHAPES[request.param])
    with SGLangServer(random_models.target, tmp_path_factory.mktemp("sampling") / "log", *LARGE, *arguments) as server:
        yield server


@pytest.fixture(scope="module")
def reference(random_models: Models) -> JointReference:
    """The target in transformers."""
    return JointReference(random_models.target)


def windows(answers: list[Answer]) -> list[Window]:
    """The tokens of each answer."""
    return [tuple(text) for text in texts(answers)]


def sample(server: SGLangServer, how: JointSampling) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    batches = (server.generate(PROMPT, n=TOGETHER, **REQUEST, **how._asdict()) for _ in range(SAMPLES // TOGETHER))
    return [window for batch in batches for window in windows(batch)]


def p_value_of(found: list[Window], reference: JointReference, how: JointSampling) -> float:
    """Of these windows, under the target's exact distribution."""
    expected = cells(reference, list(PROMPT.encode()), how, len(found))  # type: ignore[arg-type]
    assert len(expected) > 10
    return p_value(found, expected)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_joint_of_the_first_tokens(sampling: SGLangServer, reference: JointReference, name: str) -> None:
    assert p_value_of(sample(sampling, SAMPLINGS[name]), reference, SAMPLINGS[name]) > REJECT_BELOW


def test_every_request_of_a_mixed_batch_has_its_own_distribution(
    sampling: SGLangServer, reference: JointReference
) -> None:
    kinds = {"greedy": JointSampling(temperature=0.0), **{name: SAMPLINGS[name] for name in ("T=1", "T=0.5", "top-k")}}
    each = [REQUEST | how._asdict() for how in kinds.values()]
    found: list[Window] = []
    for _ in range(8):
        prompts = [PROMPT] * (250 * len(each))
        found += windows(sampling.generate(prompts, options={"sampling_params": each * 250}))
    greedy = tuple(reference.greedy(list(PROMPT.encode()), LENGTH))
    for place, (name, how) in enumerate(kinds.items()):
        own = found[place :: len(each)]
        if name == "greedy":
            assert set(own) == {greedy}
        else:
            assert p_value_of(own, reference, how) > REJECT_BELOW, name


def test_the_wrong_temperature_fails(sampling: SGLangServer, reference: JointReference) -> None:
    assert p_value_of(sample(sampling, JointSampling(temperature=0.9)), reference, T1) < REJECT_BELOW


@pytest.fixture(scope="module")
def misstating(random_models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    """A server whose drafter claims a uniform distribution for tokens that it drew from its circuit."""
    log, path = tmp_path_factory.mktemp("misstating") / "log", [SUPPORT / "misstated_draft"]
    with SGLangServer(random_models.target, log, *LARGE, *drafting(random_models.drafter), path=path) as server:
        yield server


def test_a_misstated_draft_distribution_fails(misstating: SGLangServer, reference: JointReference) -> None:
    assert p_value_of(sample(misstating, T1), reference, T1) < REJECT_BELOW
