"""Two tensor-parallel ranks through `sglang.launch_server`: the same text, and the same drafts on both, though the
second one's states are off by an ulp.

Few requests: two ranks on two cores wait for each other busily.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine.conftest import Models
from tests.engine.prompts import prompts
from tests.engine.server import alone
from tests.engine_sglang.conftest import LARGE
from tests.engine_sglang.loop import SteppedLoop
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.server import RANKS, SGLangServer, drafting
from tests.support.random_hybrid import make_hybrid
from tests.support.random_models import make_drafter, make_target

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("off_by_an_ulp", "recorded_drafts", "hybrid")]
LENGTH, ASKED = 24, 4


class Served(NamedTuple):
    """Two ranks, the models, and the file of the first rank's drafts; the second's has ``.1`` after its name."""

    server: SGLangServer
    models: Models
    drafts: Path


# A window part, whole on each rank, and both parts, the serial one shared out over them.
@pytest.fixture(scope="module", params=[(make_drafter, 5), (make_hybrid, 4)], ids=["mtpc", "hybrid"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    make, drafts = request.param
    folder = tmp_path_factory.mktemp("ranks")
    target = make_target(folder / "target", seed=3)
    models = Models(target, make(folder / "drafter", target), drafts)
    arguments = drafting(models.drafter, "--speculative-num-steps", str(drafts), *RANKS)
    variables = {"RECORDED_DRAFTS": str(folder / "drafts"), "STATED_DRAFTS": str(folder / "stated")}
    with alone(), SGLangServer(target, folder / "log", *LARGE, *arguments, path=PLUGINS, variables=variables) as server:
        yield Served(server, models, folder / "drafts")


def test_texts_and_drafts_are_those_of_one_rank(served: Served) -> None:
    exact, loop = JointReference(served.models.target), SteppedLoop(served.models.target, served.models.drafter)
    for prompt in prompts(ASKED):
        answer, ids = served.server.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True), list(prompt.encode())
        assert answer["output_ids"] == exact.greedy(ids, LENGTH)
        steps = [json.loads(line) for line in served.drafts.read_text().splitlines()]
        drafts = [step[name] for step in steps if (name := answer["meta_info"]["id"]) in step]
        expected = loop.drafts(ids, LENGTH, served.models.drafts)
        assert drafts[: len(expected)] == expected


def test_ranks_draft_the_same(served: Served) -> None:
    """Also where drafts are drawn, and what is stated of them to the last bit."""
    before = len(served.drafts.read_text().splitlines())
    served.server.generate(prompts(1)[0], max_new_tokens=LENGTH, ignore_eos=True, temperature=1.0, n=8)
    first, second = (Path(f"{served.drafts}{rank}").read_text().splitlines() for rank in ("", ".1"))
    both = min(len(first), len(second))  # the last step may be on its way to one of the files
    assert both > before + 5
    assert second[:both] == first[:both]
    own, other = (served.drafts.with_name(f"stated{rank}").read_text().splitlines() for rank in ("", ".1"))
    assert len(set(own)) > 5
    assert other[:both] == own[:both]
