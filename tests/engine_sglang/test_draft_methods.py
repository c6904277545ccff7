"""Every draft method through `sglang.launch_server`: drafts, greedy outputs and the output distribution.

Drafts must equal those of the reference implementation, and outputs must follow the target.  A server takes a while to
start, so it serves all tests of a case.  As a control, a drafter misstates its distributions while a file exists.  The
models are random and tiny: half of the steps reject a draft token, which exercises the verification rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from mtpc.methods import draft_methods
from mtpc.methods.pair import Rule
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc.token_map import copies, read, vocabulary_values
from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, cells, p_value
from tests.engine.loop import Tree
from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import LARGE, SYNCHRONOUS
from tests.engine_sglang.loop import SteppedLoop
from tests.engine_sglang.reference import JointReference, JointSampling
from tests.engine_sglang.server import Answer, SGLangServer, drafting, texts
from tests.support import random_echo
from tests.support.often import each_of, ends_of
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import make_between, make_subset, register_method
from tests.support.random_lora import make_lora
from tests.support.random_medusa import make_medusa
from tests.support.random_mimo import make_mimo
from tests.support.random_models import (
    make_byte_circuit,
    make_copying,
    make_drafter,
    make_target,
    make_target_leaves,
)
from tests.support.random_pair import make_pair, make_text_target
from tests.support.random_qwen3 import make_qwen3
from tests.support.small_tokenizers import byte_level, byte_target

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("recorded_drafts", "misstated_draft", "hybrid", "echo")]
PROMPT, SMALL, CAPITAL = "It was the best of ", "it was the best of ", "IT WAS THE WORST OF "
VOCABULARY, SIZE = 258, 60  # tokens of the target, and of each draft vocabulary
SAMPLES, TOGETHER = 3000, 500  # windows of a chi-square test, as in test_power.py, and of one request for them
PAGES, CHUNKS = ("--page-size", "16"), ("--chunked-prefill-size", "48")
BORROWED = 4  # nodes of the trees that borrow any
T1 = JointSampling()
COPY, WHOLE = "?copy=true", "?adaptive=false"
# At batch size 1 the draft length is adaptive, and some steps draft nothing. In a batch, drafts cost next to nothing.
# So neither the acceptance in earlier tests nor measured times can leave the controls without drafts.
COST = (
    '{"plain":[[1,1.0],[16,1.5]],"verifying":[[1,1.0],[2,1.1],[8,1.45],[9,1.45]],"drafting":[[1,0.9],[2,0.0],[3,0.0]]}'
)
PAYING = f"{COPY}&step_cost={COST}"
# The same where one token more is dearer, and four as dear as two: an autoregressive part of 3 drafts none, or all.
DEARER = COST.replace("[2,1.1]", "[2,1.3],[4,1.3]").replace("[1,0.9]", "[1,0.5]")
REPEATED = [
    (2 * PROMPT, how)
    for how in (
        T1,
        JointSampling(temperature=0.5),
        JointSampling(top_k=12),
        JointSampling(top_p=0.8),
        JointSampling(0.8, 20, 0.9, 0.02),
    )
]
VARIED = [(SMALL, T1), (CAPITAL, JointSampling(0.6)), (CAPITAL, JointSampling(1.0, 20, 0.9))]


class Case(NamedTuple):
    """What is served, and what is asked of it."""

    models: Models
    plain: Path  # the target for transformers
    arguments: tuple[str, ...] = ()
    token_map: str | None = None
    sampled: list[tuple[str, JointSampling]] = VARIED
    wrong: float | None = None  # a temperature that is not 1, for a negative control
    tree: Tree | None = None

    @property
    def drafts(self) -> tuple[str, ...]:
        """The arguments for what is drafted."""
        depth = ("--speculative-num-steps", str(self.models.drafts))
        if self.tree is None:
            return depth
        nodes, children = self.tree
        return *depth, "--speculative-eagle-topk", str(children), "--speculative-num-draft-tokens", str(nodes + 1)


def mtpc(folder: Path, *arguments: str, tree: Tree | None = None, token_map: str = WHOLE) -> Case:
    """A parallel part alone."""
    target = make_target(folder / "target")
    models = Models(target, make_drafter(folder / "drafter", target), 5)
    return Case(models, target, arguments, token_map, wrong=0.8, tree=tree)


def through_head(folder: Path, *arguments: str, tree: Tree | None = None, token_map: str = "") -> Case:
    """A circuit through the target's head, by language; token_map: further settings."""
    target = make_target(folder / "target", seed=3)
    options = {"circuit": "cp", "token_input": True} if token_map else {}
    models = Models(target, make_target_leaves(folder / "drafter", target, **options), 5)
    return Case(models, target, arguments, vocabulary(folder) + token_map, tree=tree)


def through_head_copying(folder: Path) -> Case:
    """The same, with prompt lookup and an adaptive draft length."""
    case, repeated = through_head(folder, SYNCHRONOUS), PAYING.removeprefix("?")
    token_map = vocabulary(folder).replace("adaptive=false", repeated)
    return case._replace(models=case.models._replace(drafts=9), token_map=token_map, sampled=REPEATED)


def byte_circuit(folder: Path) -> Case:
    """A circuit over the bytes of the target's tokens, some of which have two; steps overlap."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_byte_circuit(folder / "drafter", target), 6)
    return Case(models, target, (*CHUNKS, *PAGES), WHOLE, wrong=0.8)


def copying(folder: Path) -> Case:
    """A parallel part of 7 drafts, and copying; chains without it are in test_acceptance.py and test_same_text.py."""
    case = mtpc(folder, SYNCHRONOUS)
    return case._replace(models=case.models._replace(drafts=9), token_map=PAYING, sampled=REPEATED)


def fastmtp(folder: Path, *arguments: str, tree: Tree | None = None) -> Case:
    """An autoregressive part alone, of kind llama, drafting from the vocabulary of the request's language."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_fastmtp(folder / "drafter", target), 3)
    return Case(models, target, arguments, vocabulary(folder), wrong=0.8, tree=tree)


def mimo(folder: Path) -> Case:
    """An autoregressive part alone, of kind qwen2, for 3 drafts, and copying: a converted MTP layer of MiMo.

    Steps that overlap are in test_chat.py and test_ranks.py.
    """
    made = make_mimo(folder)
    # The target brings its configuration class, as the published one does.
    arguments = ("--trust-remote-code", *CHUNKS, SYNCHRONOUS)
    return Case(Models(made.target, made.drafter, 5), made.plain, arguments, f"{COPY}&step_cost={DEARER}", REPEATED)


def qwen3_moe(folder: Path) -> Case:
    """An autoregressive part alone, of kind qwen3, dense behind experts, with a vocabulary for each language."""
    target = make_qwen3(folder / "target", experts=True)
    models = Models(target, make_fastmtp(folder / "drafter", target), 3)
    return Case(models, target, (SYNCHRONOUS,), vocabulary(folder), wrong=0.8)


def gumiho(folder: Path, *arguments: str, tree: Tree | None = None, token_map: str | None = None) -> Case:
    """Two layers that draft two tokens, and joint heads.

    token_map: None: all draft from the vocabulary of the request's language.
    """
    target, heads = make_target(folder / "target", seed=3), {"positions": 3, "blocks": 1, "circuit": "cp", "rank": 3}
    drafter = make_gumiho(folder / "drafter", target, heads, num_hidden_layers=2, normed=False)
    return Case(Models(target, drafter, 5), target, arguments, token_map or vocabulary(folder), tree=tree)


def medusa(folder: Path, tree: Tree | None = None) -> Case:
    """Four of five published heads, or a tree of all, which share the target's output head."""
    target = make_target(folder / "target", seed=1)
    drafter = make_medusa(folder / "drafter", target, "safetensors" if tree is None else "shared")
    return Case(Models(target, drafter, 4 if tree is None else 5), target, (*CHUNKS, *PAGES), WHOLE, tree=tree)


def copying_alone(folder: Path) -> Case:
    """Neither part; it copies by default."""
    target = make_target(folder / "target")
    models = Models(target, make_copying(folder / "drafter", target), 6)
    return Case(models, target, (SYNCHRONOUS,), WHOLE, sampled=REPEATED)


def between(folder: Path) -> Case:
    """A layer that reads a state between the target's layers, and a circuit behind it; steps overlap."""
    target = make_target(folder / "target", seed=3)
    return Case(Models(target, make_between(folder / "drafter", target), 4), target, (*CHUNKS, *PAGES), WHOLE)


def lora(folder: Path, *arguments: str, tree: Tree | None = None, token_map: str = WHOLE) -> Case:
    """A circuit behind the target's last two of three layers with adapters."""
    target = make_target(folder / "target", seed=3, layers=3)
    models = Models(target, make_lora(folder / "drafter", target, layers=2), 5)
    return Case(models, target, arguments, token_map, tree=tree)


def lora_copying(folder: Path) -> Case:
    """Another type of layers, drafts as long as is worth it, and prompt lookup."""
    target = make_qwen3(folder / "target")
    models = Models(target, make_lora(folder / "drafter", target, "btree"), 9)
    return Case(models, target, (SYNCHRONOUS,), PAYING, sampled=REPEATED)


def subset(folder: Path) -> Case:
    """Layers and heads behind them with an embedding and an output head of their own, of half of the tokens."""
    target = make_target(folder / "target", seed=3)
    return Case(Models(target, make_subset(folder / "drafter", target), 5), target, (), WHOLE, tree=Tree(11, 3))


def echo(folder: Path) -> Case:
    """A text part, whose drafts differ in length; it makes steps synchronous automatically."""
    target = make_target(folder / "target")
    models = Models(target, random_echo.make_echo(folder / "drafter", target), 4)
    sampled = [(SMALL[:16], T1), *VARIED[1:]]  # texts of lengths after which it drafts
    return Case(models, target, CHUNKS, WHOLE, sampled=sampled, wrong=0.8)


def pair(folder: Path, translation: Rule) -> Case:
    """A draft model with another tokenizer; or with the target's bytes, which are verified lazily."""
    target = make_target(folder / "target", seed=3)
    own = byte_target() if translation == "slrs" else None
    drafter = make_pair(folder / "drafter", target, translation, tokenizer=own, noise=1.0, min_confidence=0.05)
    sampled = [(SMALL, JointSampling(0.9)), *VARIED[1:]]
    return Case(Models(target, drafter, 4), target, CHUNKS, WHOLE, sampled=sampled, wrong=0.8)


def pair_copying(folder: Path) -> Case:
    """A draft model, or prompt lookup in its place, for as long as is worth it."""
    case = pair(folder, "tli")
    return case._replace(models=case.models._replace(drafts=9), token_map=PAYING)


def vocabulary(folder: Path) -> str:
    """A token map: draft vocabularies, by the language of each request."""
    return f"{make_vocabulary(folder / 'vocabulary.json', VOCABULARY)}?size={SIZE}&language=auto&adaptive=false"


# Steps that overlap or not, pages of 1 or 16, prompts read at once or in parts, chains and trees.
CASES = {
    "mtpc, copying": copying,
    "bytecircuit": byte_circuit,
    "mtpc, tree": lambda folder: mtpc(folder, tree=Tree(11, 3), token_map=f"{WHOLE}&borrow={BORROWED}"),
    "mtpc, through the head, copying": through_head_copying,
    "mtpc, through the head, tree": lambda folder: through_head(
        folder, SYNCHRONOUS, tree=Tree(11, 3), token_map=f"&borrow={BORROWED}"
    ),
    "fastmtp, tree, by language, pages of 16": lambda folder: fastmtp(folder, *PAGES, SYNCHRONOUS, tree=Tree(7, 2)),
    "fastmtp, MiMo, copying": mimo,
    "fastmtp, Qwen3-MoE": qwen3_moe,
    "gumiho": lambda folder: gumiho(folder, *CHUNKS, *PAGES, SYNCHRONOUS),
    "gumiho, tree": lambda folder: gumiho(folder, tree=Tree(11, 3), token_map=f"{WHOLE}&borrow={BORROWED}"),
    "medusa": medusa,
    "medusa, tree": lambda folder: medusa(folder, Tree(11, 3)),
    "copying": copying_alone,
    "between": between,
    "mtpc, LoRA": lambda folder: lora(folder, *CHUNKS, *PAGES),
    "mtpc, LoRA, tree": lambda folder: lora(folder, tree=Tree(11, 3), token_map=f"{WHOLE}&borrow={BORROWED}"),
    "mtpc, LoRA, copying": lora_copying,
    "subset, tree": subset,
    "echo": echo,
    "pair, tli": lambda folder: pair(folder, "tli"),
    "pair, copying": pair_copying,
    "pair, slem": lambda folder: pair(folder, "slem"),
    "pair, slrs": lambda folder: pair(folder, "slrs"),
}
OFTEN = ("mtpc, copying", "gumiho, tree")


class Served(NamedTuple):
    """A case's server, the same without an engine, the target in transformers, and the folder of all files."""

    case: Case
    server: SGLangServer
    loop: SteppedLoop
    exact: JointReference
    folder: Path


@contextmanager
def serving(case: Case, folder: Path, *arguments: str) -> Iterator[Served]:
    """The server of a case, with these arguments besides."""
    tokens = () if case.token_map is None else ("--speculative-token-map", case.token_map)
    models, values = case.models, vocabulary_values(case.token_map)
    vocabularies = open_vocabularies(values, models.drafter, VOCABULARY, str(models.target))
    loop, exact = SteppedLoop(case.plain, case.models.drafter, vocabularies), JointReference(case.plain)
    loop.copies = copies(case.token_map, not loop.drafter.config.own_drafts)
    loop.cost = read(case.token_map).step_cost
    loop.tree, loop.depth, loop.borrow = case.tree, case.models.drafts, read(case.token_map).borrow
    with SGLangServer(
        case.models.target,
        folder / "log",
        *LARGE,
        *drafting(case.models.drafter, *case.drafts, *tokens, *case.arguments),
        *arguments,
        path=PLUGINS,
        variables={"RECORDED_DRAFTS": str(folder / "drafts"), "MISSTATED_DRAFTS": str(folder / "misstate")},
    ) as server:
        yield Served(case, server, loop, exact, folder)


@pytest.fixture(scope="module", params=each_of(CASES, OFTEN))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    folder = tmp_path_factory.mktemp("served")
    with serving(CASES[request.param](folder), folder) as served:
        yield served


def recorded(served: Served, answers: list[Answer]) -> list[list[list[int]]]:
    """The drafts of each request, step by step."""
    steps = [json.loads(line) for line in (served.folder / "drafts").read_text().splitlines()]
    ids = [answer["meta_info"]["id"] for answer in answers]
    return [[step[name] for step in steps if name in step] for name in ids]


def test_drafts_are_those_of_the_plain_loop(served: Served) -> None:
    asked = [prompt[: 8 + i % 70] for i, prompt in enumerate(prompts(48))]
    asked = [prompt.upper() if i % 4 > 1 else prompt for i, prompt in enumerate(asked)]
    answers = [served.server.generate(prompt, max_new_tokens=16, ignore_eos=True) for prompt in asked[::2]]
    answers += served.server.generate_all(asked[1::2], 8, max_new_tokens=16, ignore_eos=True)
    asked = [*asked[::2], *asked[1::2]]
    if served.loop.cost is not None:  # how long drafts are depends on the others of the batch
        asked, answers = asked[:24], answers[:24]
    steps, lengths, filled = 0, set(), 0
    for prompt, drafts in zip(asked, recorded(served, answers), strict=True):
        expected = served.loop.drafts(list(prompt.encode()), 16, served.case.models.drafts)
        if served.loop.drafter.method.reads_text:
            pairs = list(zip(drafts[: len(expected)], expected, strict=True))
            filled += sum(len(made) > len(draft) for made, draft in pairs)
            expected = [[*draft, *[0] * (len(made) - len(draft))] for made, draft in pairs]
        if served.case.tree is None:
            assert drafts[: len(expected)] == expected
        else:  # the order of equally probable nodes is nobody's
            assert [sorted(step) for step in drafts[: len(expected)]] == [sorted(step) for step in expected]
        steps += len(expected)
        lengths |= set(map(len, expected))
    if served.loop.cost is None:
        assert steps > 300
    else:
        assert steps > 100
        assert served.case.models.drafts in lengths
        assert 0 in lengths or served.loop.drafter.method.reads_text
        assert len(lengths) > 3
        if served.loop.drafter.config.own_drafts:  # by the drafter, and copied without it
            kinds, few = served.loop.kinds, 1 if served.loop.drafter.method.reads_text else 2
            assert sum(times for (own, _), times in kinds.items() if own > few) > 5
            assert sum(times for (own, copied), times in kinds.items() if copied and not own) > 5
    if served.loop.cost is None:  # up to the longest draft of a batch
        assert (filled > 30) == served.loop.drafter.method.reads_text
    assert (served.loop.borrowed > 30) == (served.loop.borrow > 0)
    if served.loop.copies:
        assert steps / 8 < served.loop.copied < steps
    vocabularies = served.loop.vocabularies
    if vocabularies is not None and vocabularies.detector is not None:  # both languages, many times
        assert min(served.loop.used[0], served.loop.used[1]) > 30


def test_a_predicted_output_is_copied(served: Served) -> None:
    if not served.loop.copies:
        pytest.skip("nothing is copied")
    firsts = {prompt: served.exact.greedy(list(prompt.encode()), 1)[0] for prompt in prompts(24)}
    prompt, first = next((prompt, first) for prompt, first in firsts.items() if 32 < first < 127)
    expected = served.exact.greedy(list(prompt.encode()), 16)
    for prediction, is_copied in ((f"{chr(first)}predicted", True), (7, False), (None, False)):
        named = {} if prediction is None else {"custom_params": {"prediction": prediction}}
        answer = served.server.generate(prompt, max_new_tokens=16, ignore_eos=True, **named)
        assert texts([answer]) == [expected]
        assert (recorded(served, [answer])[0][0][:4] == list(b"pred")) == is_copied


def test_a_request_limits_its_drafts(served: Served) -> None:
    """Alone, and in a batch with one that has no limit; beyond it token 0 is verified, and texts stay the same."""
    prompt, length, limits = 3 * SMALL, 48, (None, 0, 1)
    expected = served.exact.greedy(list(prompt.encode()), length)

    def answer(limit: Any) -> Answer:
        named = {} if limit is None else {"custom_params": {"max_draft_tokens": limit}}
        answered: Answer = served.server.generate(prompt, max_new_tokens=length, ignore_eos=True, **named)
        return answered

    for together in (1, 3):
        with ThreadPoolExecutor(together) as pool:
            answers = list(pool.map(answer, limits))
        assert texts(answers) == [expected] * 3
        free, none, one = recorded(served, answers)
        assert any(any(draft[1:]) for draft in free)
        if served.case.tree is not None:
            continue
        assert not any(any(draft) for draft in none)
        assert any(any(draft) for draft in one) and not any(any(draft[1:]) for draft in one)
        if together == 1 and served.loop.cost is not None:
            assert max(map(len, none)) == 0 and max(map(len, one)) == 1
    for wrong in ("1", -1, 1e9, True):
        assert texts([answer(wrong)]) == [expected]
    log = served.server.log.read_text()
    assert "'max_draft_tokens' is ignored: it must be a whole number, 0 or more, not '1'" in log
    assert ("a draft tree has a fixed number of nodes" in log) == (served.case.tree is not None)


def test_greedy_texts(served: Served) -> None:
    asked = prompts(12)
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in asked]
    for together in (1, 8):
        answers = served.server.generate_all(asked, together, max_new_tokens=48, ignore_eos=True)
        assert texts(answers) == expected
        accepted = sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers)
        assert accepted > 0  # a random drafter is seldom right


def sample(served: Served, prompt: str | list[int], sampling: JointSampling, **more: Any) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    request = {"max_new_tokens": LENGTH, "ignore_eos": True, "n": TOGETHER, **sampling._asdict(), **more}
    batches = [served.server.generate(prompt, **request) for _ in range(SAMPLES // TOGETHER)]
    return [tuple(text) for batch in batches for text in texts(batch)]


def p_of(
    served: Served,
    prompt: str | list[int],
    sampling: JointSampling,
    windows: list[Window],
    allowed: list[int] | None = None,
) -> float:
    """Of these windows, under the target's exact distribution; allowed: the tokens of a grammar."""
    ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
    table = cells(served.exact, ids, sampling, len(windows), allowed)  # type: ignore[arg-type]
    assert len(table) > 10
    return p_value(windows, table)


def test_languages_and_temperatures_in_one_batch(served: Served, pytestconfig: pytest.Config) -> None:
    greedy, asked = prompts(4), ends_of(served.case.sampled, pytestconfig)
    with ThreadPoolExecutor(1 + len(asked)) as pool:
        sampled = [pool.submit(sample, served, *one) for one in asked]
        answers = pool.submit(served.server.generate_all, greedy * 4, 4, max_new_tokens=48, ignore_eos=True)
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in greedy] * 4
    assert texts(answers.result()) == expected
    for (prompt, sampling), windows in zip(asked, sampled, strict=True):
        assert p_of(served, prompt, sampling, windows.result()) > REJECT_BELOW


def test_a_grammar_keeps_the_targets_distribution(served: Served, pytestconfig: pytest.Config) -> None:
    """In one batch with requests without a grammar.

    Drafts are drawn: SGLang masks the logits of each position, and cuts no draft tokens.
    """
    if served.case.tree is not None and not pytestconfig.getoption("--thorough"):
        pytest.skip("with trees --thorough asks for it")
    (prompt, _), sampling = served.case.sampled[0], JointSampling(0.9)
    letters = [*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]
    with ThreadPoolExecutor(2) as pool:
        free = pool.submit(sample, served, prompt, sampling)
        bound = pool.submit(sample, served, prompt, sampling, regex="[A-Za-z]{9}")
    assert p_of(served, prompt, sampling, free.result()) > REJECT_BELOW
    assert p_of(served, prompt, sampling, bound.result(), letters) > REJECT_BELOW
    if served.case.tree is None:
        assert p_misstated(served, prompt, sampling, letters, regex="[A-Za-z]{9}") < REJECT_BELOW


def test_the_wrong_temperature_fails(served: Served) -> None:
    if served.case.wrong is None:
        pytest.skip("a case that states its distributions is found out by misstating them")
    prompt = served.case.sampled[0][0]
    windows = sample(served, prompt, JointSampling(served.case.wrong))
    assert p_of(served, prompt, T1, windows) < REJECT_BELOW


def p_misstated(
    served: Served,
    prompt: str | list[int],
    sampling: JointSampling,
    allowed: list[int] | None = None,
    **more: Any,
) -> float:
    """Of windows that a drafter has led astray."""
    switch = served.folder / "misstate"
    switch.touch()
    try:
        windows = sample(served, prompt, sampling, **more)
    finally:
        switch.unlink()
    return p_of(served, prompt, sampling, windows, allowed)


def test_a_misstated_draft_distribution_fails(served: Served) -> None:
    if served.case.tree is not None:
        pytest.skip("with a tree no distribution is stated: the target alone chooses")
    assert p_misstated(served, *served.case.sampled[0]) < REJECT_BELOW


@pytest.mark.thorough
def test_slrs_for_a_target_of_subwords(tmp_path: Path) -> None:
    """A draft model over bytes, in batches of greedy and sampled requests."""
    target = make_text_target(tmp_path / "target", byte_level())
    drafter = make_pair(tmp_path / "drafter", target, "slrs", tokenizer=byte_target(), min_confidence=0.05)
    asked, sampling = [byte_level().encode(prompt) for prompt in prompts(12)], JointSampling(0.9)
    with (
        serving(Case(Models(target, drafter, 4), target, CHUNKS, WHOLE), tmp_path) as served,
        ThreadPoolExecutor(1) as pool,
    ):
        sampled = pool.submit(sample, served, asked[0], sampling)
        answers = served.server.generate_all(asked, 4, max_new_tokens=48, ignore_eos=True)
        assert texts(answers) == [served.exact.greedy(ids, 48) for ids in asked]
        assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) > 20
        assert p_of(served, asked[0], sampling, sampled.result()) > REJECT_BELOW
        assert p_misstated(served, asked[0], sampling) < REJECT_BELOW


def test_the_log_tells_the_draft_vocabularies(served: Served) -> None:
    logged = "their output head rows take" in (served.folder / "log").read_text()
    assert logged == (served.loop.vocabularies is not None)


def test_every_family_has_a_case() -> None:
    register_method()
    random_echo.register_method()
    served_by_ranks = {"hybrid"}  # a draft method of the tests, known where their module is loaded
    assert {method.name for method in draft_methods()} - served_by_ranks == {name.partition(",")[0] for name in CASES}
