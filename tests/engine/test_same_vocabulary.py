"""A draft model with the target's tokens in another order, converted, through `vllm serve` as its own `draft_model`.

It is accepted exactly as often as the model whose tokens were given another order; where it is not converted, never.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.conftest import CAPACITY
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.permuted import Accepted, accepted
from tests.engine.prompts import prompts
from tests.engine.server import Server, tokens
from tests.support.random_pair import Permuted, make_permuted_pair
from tests.support.small_tokenizers import byte_level

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
DRAFTS, TOKENS, SAMPLES = 4, 48, 3000


class Served(NamedTuple):
    """A server, the models, and which of them drafts."""

    server: Server
    models: Permuted
    draft: str


@pytest.fixture(scope="module", params=("converted", "control"))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The target with one of the draft models."""
    folder: Path = tmp_path_factory.mktemp("permuted")
    models = make_permuted_pair(folder)
    settings = {"method": "draft_model", "model": str(getattr(models, request.param)), "num_speculative_tokens": DRAFTS}
    drafting = json.dumps(settings | {"draft_sample_method": "probabilistic"})
    with Server(models.target, folder / "log", *CAPACITY, "--speculative-config", drafting) as server:
        yield Served(server, models, request.param)


def counted(server: Server) -> Accepted:
    """All steps and accepted tokens so far."""
    names = ("drafts", "accepted_tokens")
    return Accepted(*(int(server.metric(f"vllm:spec_decode_num_{name}_total")) for name in names))


def test_greedy_texts_and_acceptance(served: Served) -> None:
    exact, plain = Reference(served.models.target), Reference(served.models.plain)
    before, expected = counted(served.server), []
    for prompt in prompts(12):
        ids = byte_level().encode(prompt)
        text = exact.greedy(ids, TOKENS + DRAFTS)
        assert tokens(served.server.complete(ids, max_tokens=TOKENS, ignore_eos=True)) == [text[:TOKENS]]
        expected.append(accepted(plain, ids, text, TOKENS, DRAFTS, 0))
    after = counted(served.server)
    found = Accepted(after.steps - before.steps, after.tokens - before.tokens)
    if served.draft == "control":
        assert found.tokens < 0.1 * found.steps
    else:
        assert found == Accepted(*map(sum, zip(*expected, strict=True)))
        assert found.tokens > found.steps


def test_sampled_texts(served: Served) -> None:
    exact, ids, sampling = Reference(served.models.target), byte_level().encode("The quick "), Sampling(0.9)
    body = {"n": SAMPLES // 8, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict()}
    sampled = [tuple(each) for _ in range(8) for each in tokens(served.server.complete(ids, **body))]
    assert p_value(sampled, cells(exact, ids, sampling, SAMPLES)) > REJECT_BELOW
    assert p_value(sampled, cells(exact, ids, Sampling(0.7), SAMPLES)) < REJECT_BELOW
