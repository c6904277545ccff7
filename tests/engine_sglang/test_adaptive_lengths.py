"""Draft lengths that SGLang adapts (``--speculative-adaptive``): the same texts and distribution.

Batches of one or two have drafts of one token or all, larger ones of none or two, and batches of six to eight none.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import SYNCHRONOUS
from tests.engine_sglang.server import texts
from tests.engine_sglang.test_draft_methods import (
    COPY,
    T1,
    WHOLE,
    Case,
    Served,
    fastmtp,
    gumiho,
    lora,
    medusa,
    mtpc,
    p_misstated,
    p_of,
    recorded,
    sample,
    serving,
)
from tests.support.often import each_of

pytestmark = pytest.mark.engine
LENGTH = 48
COPYING = WHOLE.replace("?", f"{COPY}&")
CASES: dict[str, Callable[[Path], Case]] = {
    "mtpc": mtpc,
    "mtpc, copying": lambda folder: mtpc(folder, SYNCHRONOUS, token_map=COPYING),
    "mtpc, LoRA": lora,
    "medusa": medusa,
    "fastmtp": lambda folder: fastmtp(folder)._replace(token_map=WHOLE),
    "fastmtp, by language": fastmtp,
    "fastmtp, copying": lambda folder: fastmtp(folder, SYNCHRONOUS)._replace(token_map=COPYING),
    "gumiho": lambda folder: gumiho(folder, token_map=WHOLE),
    "gumiho, copying": lambda folder: gumiho(folder, SYNCHRONOUS, token_map=COPYING),
}


@pytest.fixture(scope="module", params=each_of(CASES, ("mtpc", "fastmtp")))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter, which drafts as many tokens as SGLang chooses."""
    folder = tmp_path_factory.mktemp("served")
    with serving(adaptive(CASES[request.param](folder), folder), folder) as served:
        yield served


def adaptive(case: Case, folder: Path) -> Case:
    """With a draft length that SGLang adapts."""
    most = case.models.drafts
    candidates = {"1": [1, most], "3": [0, 2], "6": [0], "9": [2, most]}
    slots = {size: {"candidate_steps": steps} for size, steps in candidates.items()}
    (folder / "steps.json").write_text(json.dumps({**slots, "warmup_batches": 2, "update_interval": 2}))
    steps = ("--speculative-adaptive", "--speculative-adaptive-config", str(folder / "steps.json"))
    return case._replace(arguments=(*case.arguments, *steps))


def test_greedy_texts_and_drafts(served: Served) -> None:
    """A draft is the beginning of the longest one that is drafted after the same text."""
    asked, lengths = prompts(16), Counter[int]()
    expected = [served.exact.greedy(list(prompt.encode()), LENGTH) for prompt in asked]
    drafts: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    for together in (1, 2, 4, 8):
        answers = served.server.generate_all(asked, together, max_new_tokens=LENGTH, ignore_eos=True)
        assert texts(answers) == expected
        for number, steps in enumerate(recorded(served, answers)):
            place = 1
            for draft in steps:
                lengths[len(draft)] += 1
                drafts[number, place].add(tuple(draft))
                following = zip(draft, expected[number][place:], strict=False)
                place += 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], following))
    assert set(lengths) <= {0, 1, 2, served.case.models.drafts}
    assert min(lengths[length] for length in (0, 2, served.case.models.drafts)) > 10
    assert served.loop.copies or lengths[1] > 10  # copied tokens are accepted more often
    longest = {place: max(made, key=len) for place, made in drafts.items()}
    pairs = [(draft, longest[place]) for place, made in drafts.items() for draft in made if draft != longest[place]]
    assert sum(1 for draft, _ in pairs if draft) > 10
    others = sum(draft != whole[: len(draft)] for draft, whole in pairs)
    # The first token is drafted at the end of the preceding step, from the vocabulary of the text so far.  How likely a
    # copied token is depends on what was accepted before.
    assert others <= (5 if served.loop.copies or served.loop.vocabularies is not None else 0)


def test_the_distribution_is_the_targets(served: Served) -> None:
    prompt = served.case.sampled[0][0]
    assert p_of(served, prompt, T1, sample(served, prompt, T1)) > REJECT_BELOW
    assert p_misstated(served, prompt, T1) < REJECT_BELOW
