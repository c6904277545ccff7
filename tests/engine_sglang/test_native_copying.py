"""Prompt lookup with SGLang's own drafters through `sglang.launch_server`: outputs, drafts and their distribution.

The drafters are random: half of the drafts are rejected, which exercises the verification rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS, StepCost
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.prompt_lookup.mixture import Copying
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc.token_map import vocabulary_values
from tests.engine.exact import LENGTH, cells, p_value
from tests.engine.prompts import in_two_languages
from tests.engine_sglang.conftest import FEW, LARGE
from tests.engine_sglang.loop import SteppedLoop
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import SGLangServer, texts
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_mimo import make_mimo
from tests.support.random_models import make_target
from tests.support.random_native import make_draft_model, make_eagle, make_eagle3, make_gumiho_of

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("recorded_drafts", "misstated_draft")]
DRAFTS, ANSWER, SAMPLES, TOGETHER = 3, 32, 3000, 500
LONGER = 8
COST = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (4, 1.1), (9, 1.3)), drafting=((1, 0.0),))
VOCABULARY, SIZE = 258, 60
LETTERS = range(97, 123)
SAMPLING = JointSampling(0.9)
Drafts = Callable[[list[int], list[int]], list[list[int]]]  # of each step of an answer, by its prompt


class Case(NamedTuple):
    """What is served.

    plain: the target for transformers.  words: the token map.  drafts: what the reference drafts; None: unknown.
    own: the tokens that the drafter drafts itself; None: any.  arguments: further ones of the server.  lengths: of its
    drafts; which of several depends on the batch.
    """

    target: Path
    plain: Path
    draft: Path
    algorithm: str
    words: str = "?copy=true"
    drafts: Drafts | None = None
    own: frozenset[int] | None = None
    arguments: tuple[str, ...] = ()
    lengths: tuple[int, ...] = (DRAFTS,)


def stepped(target: Path, drafter: Path, words: str, longest: int = DRAFTS) -> tuple[SteppedLoop, Drafts]:
    """A reference for drafters that the core has, too, and its drafts where all of them are of one language."""
    values = vocabulary_values(words)
    loop = SteppedLoop(target, drafter, open_vocabularies(values, drafter, VOCABULARY), copies=True)
    if longest > DRAFTS:
        loop.own_drafts, loop.cost = DRAFTS, COST

    def drafts(prompt: list[int], answer: list[int]) -> list[list[int]]:
        loop.used.clear()
        found = loop.drafts(prompt, len(answer), longest)
        return found if len(loop.used) == 1 else []  # SGLang's first draft is of the step before

    return loop, drafts


def nextn(folder: Path, longest: int = DRAFTS) -> Case:
    """The MTP layer in a MiMo checkpoint, draft vocabularies by language."""
    made = make_mimo(folder)
    words = f"{make_vocabulary(folder / 'vocabulary.json', VOCABULARY)}?size={SIZE}&copy=true"
    loop, drafts = stepped(made.plain, made.drafter, words, longest)
    layer = loop.drafter.autoregressive
    assert layer is not None
    # Both engines set the embedding of the first position to zero.
    layer.register_forward_pre_hook(lambda _, given: (given[0] * (given[2] != 0)[..., None], *given[1:]))
    case = Case(made.target, made.plain, made.target, "NEXTN", words, drafts)
    return case if longest == DRAFTS else with_longer_copies(case, longest)


def with_longer_copies(case: Case, longest: int) -> Case:
    """The same drafter in drafts of two lengths, with little room for keys."""
    words = f"{case.words}&copy_tokens={longest}&step_cost={COST.model_dump_json(exclude_none=True)}"
    return case._replace(words=words, arguments=FEW, lengths=(DRAFTS, longest))


def eagle(folder: Path, longest: int = DRAFTS) -> Case:
    """A layer in a directory of its own, one draft vocabulary."""
    target = make_target(folder / "target", seed=3)
    draft = make_eagle(folder / "eagle", target, sglang=True)
    file = make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    words = f"{file}?size={SIZE}&language=letters&copy=true"
    loop, drafts = stepped(target, make_gumiho_of(folder / "gumiho", draft, target), words, longest)
    assert loop.vocabularies is not None
    case = Case(target, target, draft, "EAGLE", words, drafts, frozenset(loop.vocabularies.ids[0].tolist()))
    return case if longest == DRAFTS else with_longer_copies(case, longest)


def eagle3(folder: Path) -> Case:
    """A layer with a head of its own for a few of the target's tokens."""
    target = make_target(folder / "target", seed=3, layers=4)
    return Case(
        target, target, make_eagle3(folder / "eagle3", target, [0, 1, 2], LETTERS), "EAGLE3", own=frozenset(LETTERS)
    )


def standalone(folder: Path) -> Case:
    """A whole draft model."""
    target = make_target(folder / "target", seed=3)
    draft = make_draft_model(folder / "draft", target)
    model = JointReference(draft)

    def drafts(prompt: list[int], answer: list[int]) -> list[list[int]]:
        lengths = DraftLengths(DraftBudget(DRAFTS, DRAFTS), DRAFTS, FREE_DRAFTS, CopyTable(), VOCABULARY, copies=True)
        found, known, emitted = list[list[int]](), 1, list[int]()
        while known < len(answer):
            lengths.begin()
            text = [*prompt, *answer[:known]]
            lengths.add("text", lambda text=text: text, emitted, waiting=False)
            copying, draft = Copying.begin(lengths.copied(DRAFTS)), list[int]()
            for _ in range(DRAFTS):
                # SGLang gives a draft model the token after each position, so it never reads the first one.
                own = model.next_probs([[*text, *draft][1:]], JointSampling()).float()
                token = copying.mixed(own).argmax(1)
                copying = copying.drafted(token, copying.drafter_probability(own))
                draft += token.tolist()
            found.append(draft)
            right = [one == other for one, other in zip(draft, answer[known:], strict=False)]
            accepted = [*right, False].index(False)
            emitted = answer[known : known + accepted + 1]
            known += accepted + 1
        return found

    # In SGLang's prefix cache the last key of a shared prefix is that of the token after it in another prompt.
    return Case(target, target, draft, "STANDALONE", drafts=drafts, arguments=("--disable-radix-cache",))


CASES: dict[str, Callable[[Path], Case]] = {
    "NEXTN": nextn,
    "NEXTN, longer copies": partial(nextn, longest=LONGER),
    "EAGLE": eagle,
    "EAGLE, longer copies": partial(eagle, longest=LONGER),
    "EAGLE3": eagle3,
    "EAGLE3, longer copies": lambda folder: with_longer_copies(eagle3(folder), LONGER),
    "STANDALONE": standalone,
}


class Served(NamedTuple):
    """A case, its server, the target in transformers, and the folder of all files."""

    case: Case
    server: SGLangServer
    exact: JointReference
    folder: Path


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    folder = tmp_path_factory.mktemp("copying")
    case = CASES[request.param](folder)
    shape = ("--speculative-num-steps", str(DRAFTS), "--speculative-eagle-topk", "1")
    with SGLangServer(
        case.target,
        folder / "log",
        *(*LARGE, *shape, "--speculative-num-draft-tokens", str(DRAFTS + 1), "--trust-remote-code"),
        *("--speculative-algorithm", case.algorithm, "--speculative-draft-model-path", str(case.draft)),
        *("--speculative-token-map", case.words, *case.arguments),
        path=PLUGINS,
        variables={"RECORDED_DRAFTS": str(folder / "drafts"), "MISSTATED_DRAFTS": str(folder / "misstate")},
    ) as server:
        yield Served(case, server, JointReference(case.plain), folder)


def repeating(count: int) -> list[str]:
    """Prompts that end in what they began with, every other one in capitals."""
    return [prompt + prompt[: len(prompt) // 2] for prompt in in_two_languages(count)]


def test_greedy_texts_and_drafts(served: Served) -> None:
    """The drafts are those of the reference mixture, in which some tokens are only copied.

    Two at a time, unless the length of a step's drafts depends on all of them.
    """
    asked, lengths = repeating(16), set[int]()
    together = 2 if len(served.case.lengths) == 1 else 1
    answers = served.server.generate_all(asked, together, max_new_tokens=ANSWER, ignore_eos=True)
    steps = [json.loads(line) for line in (served.folder / "drafts").read_text().splitlines()]
    drafted, equal = list[int](), 0
    for prompt, answer in zip(asked, answers, strict=True):
        ids, emitted = list(prompt.encode()), answer["output_ids"]
        assert emitted == served.exact.greedy(ids, ANSWER)
        drafts = [step[answer["meta_info"]["id"]] for step in steps if answer["meta_info"]["id"] in step]
        lengths |= {len(draft) for draft in drafts}
        drafted += [token for draft in drafts for token in draft]
        expected = [] if served.case.drafts is None else served.case.drafts(ids, emitted)
        assert drafts[: len(expected)] == expected
        equal += len(expected)
    assert lengths == set(served.case.lengths)
    assert equal > 60 or served.case.drafts is None
    if served.case.own is not None:
        copied = sum(token not in served.case.own for token in drafted)
        assert min(copied, len(drafted) - copied) > 20


def test_up_to_the_longest_text_that_the_server_takes(served: Served) -> None:
    """A context of 512 tokens, of which SGLang keeps some free for drafts."""
    prompt, room = (repeating(1)[0] * 20)[:300], 512 - 300 - 40
    answer = served.server.generate(prompt, max_new_tokens=room, ignore_eos=True)
    assert answer["output_ids"] == served.exact.greedy(list(prompt.encode()), room)


def test_retracted_requests(served: Served) -> None:
    if served.case.arguments != FEW or served.case.algorithm == "NEXTN":
        pytest.skip("cases with longer copies have little room for keys, which the short texts of NEXTN's do not fill")
    asked = list(zip(repeating(32), [8, 350] * 16, strict=True))
    retracted = served.server.metric("sglang:num_retracted_requests_total")
    for _ in range(10):  # on a busy machine requests may come too slowly for a retraction
        with ThreadPoolExecutor(len(asked)) as pool:  # SGLang reserves room for the whole of requests that ignore ends
            answers = [pool.submit(served.server.generate, prompt, max_new_tokens=length) for prompt, length in asked]
        for (prompt, length), answer in zip(asked, answers, strict=True):
            emitted = answer.result()["output_ids"]
            assert emitted == served.exact.greedy(list(prompt.encode()), length)[: len(emitted)]
        if served.server.metric("sglang:num_retracted_requests_total") > retracted:
            return
    raise AssertionError("no request was retracted")


def sampled(served: Served, prompt: str) -> float:
    """The p-value of the first tokens of continuations under the target's exact distribution."""
    request = {"max_new_tokens": LENGTH, "ignore_eos": True, "n": TOGETHER, **SAMPLING._asdict()}
    batches = [served.server.generate(prompt, **request) for _ in range(SAMPLES // TOGETHER)]
    table = cells(served.exact, list(prompt.encode()), SAMPLING, SAMPLES)  # type: ignore[arg-type]
    assert len(table) > 10
    return p_value([tuple(text) for batch in batches for text in texts(batch)], table)


def test_sampled_texts_in_one_batch_with_greedy_ones(served: Served) -> None:
    """Two languages, and prompt lookup that is sure of what follows."""
    small, capital = repeating(2)
    with ThreadPoolExecutor(3) as pool:
        greedy = pool.submit(served.server.generate, small, max_new_tokens=ANSWER, ignore_eos=True)
        assert min(pool.map(lambda prompt: sampled(served, prompt), (small, capital))) > REJECT_BELOW
    assert greedy.result()["output_ids"] == served.exact.greedy(list(small.encode()), ANSWER)


def test_a_misstated_mixture_fails(served: Served) -> None:
    switch = served.folder / "misstate"
    switch.touch()
    try:
        assert sampled(served, repeating(1)[0]) < REJECT_BELOW
    finally:
        switch.unlink()


def test_the_log_tells_it(served: Served) -> None:
    assert "prompt lookup is mixed into every draft." in (served.folder / "log").read_text()
