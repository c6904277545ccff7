"""Drafters of every draft method through `vllm serve`: drafts, greedy outputs and the output distribution.

Drafts must equal those of the reference implementation, and outputs must follow the target.  A server takes half a
minute to start, so it serves all tests of a drafter.  Some servers use vLLM's own schedule of fewer draft tokens for
larger batches.  As a control, a drafter misstates its distributions while a file exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from mtpc.methods import draft_methods, method_of
from mtpc.methods.pair import Rule
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.loop import Loop
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens
from tests.support import random_echo
from tests.support.misstated_draft.misstated_draft import FREE
from tests.support.often import each_of, ends_of
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import make_between, make_hybrid, make_subset, register_method
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
from vllm_mtpc.additional_config import draft_settings, uses_prompt_lookup, vocabulary_values

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("recorded_drafts", "misstated_draft", "hybrid", "echo")]
ASKED, SAMPLES = 50, 3000  # prompts whose drafts are compared, and windows of a chi-square test
CHUNK = 256  # tokens that a step reads at most
SMALL, CAPITAL = "it was the best of ", "IT WAS THE WORST OF "
VOCABULARY, SIZE = 258, 120  # tokens of the target, and of each draft vocabulary
STEPS = [[1, 1.0], [101, 1.1]]
# Of steps: a token more takes next to nothing.
CHEAP = {"plain": STEPS, "verifying": STEPS, "drafting": [[1, 0.02]]}
WHOLE = {"adaptive": False}  # drafts
VARIED = [(SMALL, Sampling()), (CAPITAL, Sampling(0.6)), (CAPITAL, Sampling(1.0, 20, 0.9))]


def schedule(drafts: int, fewer: int) -> list[list[int]]:
    """First and last batch size, number of drafts; large batches get all of them again, for the tests that sample."""
    return [[1, 2, drafts], [3, 5, fewer], [6, 12, 0], [13, 128, drafts]]


class Case(NamedTuple):
    """What is served, and what is asked of it."""

    models: Models
    plain: Path  # the target for transformers
    vocabulary: dict[str, Any] | None = None  # settings of the draft vocabulary
    schedule: list[list[int]] | None = None
    sampled: list[tuple[str, Sampling]] = VARIED
    arguments: tuple[str, ...] = ()
    certain: bool = False  # whether every draft is one-hot, so that no distribution can be misstated
    shows_cuts: bool = True  # whether as many samples tell that a grammar has cut drafts that were drawn


def mtpc(folder: Path) -> Case:
    """A parallel part alone."""
    target = make_target(folder / "target")
    models = Models(target, make_drafter(folder / "drafter", target), 5)
    samplings = [Sampling(), Sampling(top_p=0.8), Sampling(0.8, 20, 0.9)]
    sampled = [("It was the best of ", sampling) for sampling in samplings]
    return Case(models, target, WHOLE, schedule(5, 3), sampled)


def through_head(folder: Path) -> Case:
    """A circuit whose leaves and token input are the target's head and embedding, by language."""
    target = make_target(folder / "target", seed=3)
    drafter = make_target_leaves(folder / "drafter", target, "cp", token_input=True)
    return Case(Models(target, drafter, 5), target, by_language(folder) | WHOLE, schedule(5, 3), shows_cuts=False)


def through_head_copying(folder: Path) -> Case:
    """The same, given the token as evidence, with prompt lookup and an adaptive draft length."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_target_leaves(folder / "drafter", target), 9)
    return Case(models, target, by_language(folder) | {"copy": True, "step_cost": CHEAP}, shows_cuts=False)


def byte_circuit(folder: Path) -> Case:
    """A circuit over the bytes of the target's tokens, some of which have two; drafts end beyond its window or not."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_byte_circuit(folder / "drafter", target), 6)
    return Case(models, target, WHOLE, schedule(6, 3), shows_cuts=False)


def mimo(folder: Path) -> Case:
    """An autoregressive part alone, of kind qwen2, with the whole vocabulary: a MiMo checkpoint after `mtpc convert`.

    Its target hands over its states before the final norm, and brings its configuration class, as the published one.
    Kind llama and draft vocabularies by language are served with a parallel part behind them: see `gumiho`.
    """
    made = make_mimo(folder)
    models = Models(made.target, made.drafter, 3)
    return Case(models, made.plain, WHOLE, arguments=("--trust-remote-code",), shows_cuts=False)


def qwen3_moe(folder: Path) -> Case:
    """A layer of kind qwen3, dense behind a mixture of experts, drafting from the vocabulary of each language."""
    target = make_qwen3(folder / "target", experts=True)
    return Case(Models(target, make_fastmtp(folder / "drafter", target), 3), target, by_language(folder) | WHOLE)


def gumiho(folder: Path) -> Case:
    """Two layers and heads behind them, all drafting from the vocabulary of each language; two drafts are the layers'.

    Joint heads and layers without norms are served on the other runner.
    """
    target = make_target(folder / "target", seed=3)
    drafter = make_gumiho(folder / "drafter", target, {"positions": 3, "blocks": 2}, num_hidden_layers=2)
    return Case(Models(target, drafter, 5), target, by_language(folder) | {"step_cost": CHEAP}, schedule(5, 2))


def medusa(folder: Path) -> Case:
    """Four of five published heads."""
    target = make_target(folder / "target", seed=1)
    models = Models(target, make_medusa(folder / "drafter", target), 4)
    return Case(models, target, WHOLE, schedule(4, 2), shows_cuts=False)


def copying(folder: Path) -> Case:
    """A layer, a circuit, and prompt lookup, which makes drafts longer than both parts can."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_hybrid(folder / "drafter", target), 9)
    return Case(models, target, by_language(folder) | {"copy": True, "step_cost": CHEAP}, shows_cuts=False)


def copying_alone(folder: Path) -> Case:
    """Neither part; it copies by default."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, make_copying(folder / "drafter", target), 9)
    return Case(models, target, {"step_cost": CHEAP, "store": 1000}, certain=True, shows_cuts=False)


def between(folder: Path) -> Case:
    """A layer that reads a state between the target's layers, and a circuit behind it."""
    target = make_target(folder / "target", seed=3)
    return Case(Models(target, make_between(folder / "drafter", target), 4), target, WHOLE, schedule(4, 2))


def lora(folder: Path) -> Case:
    """A circuit behind the target's last two of three layers with adapters."""
    target = make_target(folder / "target", seed=3, layers=3)
    models = Models(target, make_lora(folder / "drafter", target, layers=2), 5)
    return Case(models, target, WHOLE, schedule(5, 3), shows_cuts=False)


def lora_qwen3(folder: Path) -> Case:
    """Another type of layers, and prompt lookup, which makes drafts longer than the circuit's."""
    target = make_qwen3(folder / "target")
    models = Models(target, make_lora(folder / "drafter", target, "btree"), 9)
    return Case(models, target, {"copy": True, "step_cost": CHEAP}, shows_cuts=False)


def subset(folder: Path) -> Case:
    """Layers and heads behind them with an embedding and an output head of their own, of half of the tokens."""
    target = make_target(folder / "target", seed=3)
    return Case(Models(target, make_subset(folder / "drafter", target), 5), target, WHOLE)


def echo(folder: Path) -> Case:
    """A text part, whose drafts differ in length."""
    target = make_target(folder / "target", seed=3)
    models = Models(target, random_echo.make_echo(folder / "drafter", target), 5)
    return Case(models, target, WHOLE, schedule=schedule(5, 2), shows_cuts=False)


def pair(folder: Path, translation: Rule) -> Case:
    """A draft model with another tokenizer; or with the target's bytes, which are verified lazily."""
    target = make_target(folder / "target", seed=3)
    own = byte_target() if translation == "slrs" else None
    drafter = make_pair(folder / "drafter", target, translation, tokenizer=own, noise=1.0, min_confidence=0.05)
    sampled = [(SMALL, Sampling(0.9)), *VARIED[1:]]
    models = Models(target, drafter, 5)
    return Case(models, target, WHOLE, schedule(5, 2), sampled=sampled, shows_cuts=False)


def pair_copying(folder: Path) -> Case:
    """A draft model, or prompt lookup in its place, for as long as is worth it."""
    case = pair(folder, "tli")
    settings = {"copy": True, "step_cost": CHEAP}
    return case._replace(models=case.models._replace(drafts=9), vocabulary=settings, schedule=None)


def by_language(folder: Path) -> dict[str, Any]:
    """Settings of the draft vocabulary."""
    return {"vocabulary": str(make_vocabulary(folder / "vocabulary.json", VOCABULARY)), "size": SIZE}


CASES = {
    "mtpc": mtpc,
    "mtpc, through the head": through_head,
    "mtpc, through the head, copying": through_head_copying,
    "bytecircuit": byte_circuit,
    "fastmtp, MiMo": mimo,
    "fastmtp, Qwen3-MoE": qwen3_moe,
    "gumiho": gumiho,
    "medusa": medusa,
    "hybrid, copying": copying,
    "copying": copying_alone,
    "between": between,
    "mtpc, LoRA": lora,
    "mtpc, LoRA, copying": lora_qwen3,
    "subset": subset,
    "echo": echo,
    "pair, tli": lambda folder: pair(folder, "tli"),
    "pair, copying": pair_copying,
    "pair, slem": lambda folder: pair(folder, "slem"),
    "pair, slrs": lambda folder: pair(folder, "slrs"),
}


class Served(NamedTuple):
    """A case's server, the same without an engine, the target in transformers, and the folder of all files."""

    case: Case
    server: Server
    loop: Loop
    exact: Reference
    folder: Path


@contextmanager
def serving(case: Case, folder: Path) -> Iterator[Served]:
    """The server of a case."""
    additional = () if case.vocabulary is None else ("--additional-config", json.dumps({"mtpc": case.vocabulary}))
    more = {} if case.schedule is None else {"num_speculative_tokens_per_batch_size": case.schedule}
    asked = {"mtpc": case.vocabulary or {}}
    models, values = case.models, vocabulary_values(asked)
    vocabularies = open_vocabularies(values, models.drafter, VOCABULARY, str(models.target))
    copy = uses_prompt_lookup(asked, not method_of(case.models.drafter).read_config(case.models.drafter).own_drafts)
    loop = Loop(case.plain, case.models.drafter, vocabularies, draft_settings(asked).step_cost, copy)
    exact = Reference(case.plain)
    with Server(
        case.models.target,
        folder / "log",
        *CAPACITY,
        *("--max-num-batched-tokens", str(CHUNK)),
        *speculative_config(case.models.drafter, case.models.drafts, **more),
        *additional,
        *case.arguments,
        path=PLUGINS,
        variables={
            "RECORDED_DRAFTS": str(folder / "drafts"),
            "MISSTATED_DRAFTS": str(folder / "misstate"),
        },
    ) as server:
        yield Served(case, server, loop, exact, folder)


@pytest.fixture(scope="module", params=each_of(CASES, ("hybrid, copying",)))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter."""
    folder = tmp_path_factory.mktemp("served")
    with serving(CASES[request.param](folder), folder) as served:
        yield served
    random_echo.forget_method()


def lines(file: Path) -> list[str]:
    """Of a file that may not be there yet."""
    return file.read_text().splitlines() if file.exists() else []


def recorded(served: Served, prompt: str, length: int) -> list[list[int]]:
    """The drafts of one request, one for each step."""
    before = len(lines(served.folder / "drafts"))
    served.server.complete(prompt, max_tokens=length, ignore_eos=True)
    return [json.loads(line)[0] for line in lines(served.folder / "drafts")[before:]]


def test_drafts_are_those_of_the_plain_loop(served: Served) -> None:
    steps = 0
    for i, prompt in enumerate(prompts(ASKED)):
        prompt = prompt[: 8 + i % 70].upper() if i % 2 else prompt[: 8 + i % 70]
        drafts = recorded(served, prompt, 16)
        expected = served.loop.drafts(list(prompt.encode()), 16, served.case.models.drafts)
        assert drafts[: len(expected)] == expected
        steps += len(expected)
    if served.loop.cost is None or not served.loop.copies:
        assert steps > 8 * ASKED
    elif not served.loop.drafter.config.own_drafts:
        assert sum(times for (_, copied), times in served.loop.kinds.items() if copied > 3) > 20
    elif served.loop.drafter.method.reads_text:  # copied alone, or the drafter's, of many lengths
        assert sum(times for (own, _), times in served.loop.kinds.items() if not own) > 20
        assert len({own for own, _ in served.loop.kinds}) > 3
    else:  # drafts of every kind: copied alone, the drafter's, and with copied ones after it
        kinds = served.loop.kinds
        assert sum(times for (own, _), times in kinds.items() if not own) > 20
        for continued in (False, True):
            assert sum(n for (own, more), n in kinds.items() if own and (more > 0) == continued) > 20
    if served.loop.vocabularies is not None:  # both languages, many times
        assert min(served.loop.used[0], served.loop.used[1]) > 50


def test_earlier_answers_of_a_tenant_are_copied_and_nobody_elses(served: Served) -> None:
    if "store" not in (served.case.vocabulary or {}):
        pytest.skip("earlier answers are not kept")

    def steps(tenant: str | None) -> int:
        before = len(lines(served.folder / "drafts"))
        named = {} if tenant is None else {"vllm_xargs": {"tenant": tenant}}
        answer = served.server.complete(prompt, max_tokens=32, ignore_eos=True, **named)
        assert tokens(answer)[0] == expected
        return len(lines(served.folder / "drafts")) - before

    # A text that repeats little of itself, so that the second time is another.
    prompt = max(prompts(12), key=lambda prompt: len(set(served.exact.greedy(list(prompt.encode()), 32))))
    expected = served.exact.greedy(list(prompt.encode()), 32)
    alone = steps("a")
    served.server.complete("x", max_tokens=1)  # what is finished is noticed in the next step
    assert steps("a") < alone
    assert steps("b") == steps(None) == steps(None) == alone


def test_a_predicted_output_is_copied(served: Served) -> None:
    if not served.loop.copies:
        pytest.skip("nothing is copied")
    firsts = {prompt: served.exact.greedy(list(prompt.encode()), 1)[0] for prompt in prompts(24)}
    prompt, first = next((prompt, first) for prompt, first in firsts.items() if 32 < first < 127)
    expected = served.exact.greedy(list(prompt.encode()), 16)
    for prediction, is_copied in ((f"{chr(first)}predicted", True), (7, False), (None, False)):
        named = {} if prediction is None else {"vllm_xargs": {"prediction": prediction}}
        before = len(lines(served.folder / "drafts"))
        answer = served.server.complete(prompt, max_tokens=16, ignore_eos=True, **named)
        assert tokens(answer)[0] == expected
        (draft,) = json.loads(lines(served.folder / "drafts")[before])
        assert (draft[:4] == list(b"pred")) == is_copied


def test_a_request_limits_its_drafts(served: Served) -> None:
    """Alone, and in a batch with one that has no limit; texts stay the same, and wrong limits are ignored."""
    prompt = 3 * SMALL
    expected = served.exact.greedy(list(prompt.encode()), 256)

    def steps(limits: Sequence[Any], length: int = 64) -> list[list[int]]:
        """The lengths of the drafts of each step, where all requests are there."""
        before = len(lines(served.folder / "drafts"))
        named = [{} if limit is None else {"vllm_xargs": {"max_draft_tokens": limit}} for limit in limits]
        with ThreadPoolExecutor(len(limits)) as pool:
            answers = pool.map(
                lambda more: served.server.complete(prompt, max_tokens=length, ignore_eos=True, **more), named
            )
            assert [tokens(answer)[0] for answer in answers] == [expected[:length]] * len(limits)
        made = [json.loads(line) for line in lines(served.folder / "drafts")[before:]]
        return [sorted(map(len, drafts)) for drafts in made if len(drafts) == len(limits)]

    assert max(steps([0])) == [0]
    assert max(steps([1])) == [1]
    for wrong in (None, "1", -1, 1e9):
        assert max(steps([wrong])) > [1]
    assert (
        "'max_draft_tokens' is ignored: it must be a whole number, 0 or more, not '1'" in served.server.log.read_text()
    )
    # Where a batch's drafts are not worth their time by what the engine has timed, none is recorded.
    assert all(none == 0 and one <= 1 for none, one, _ in steps([None, 0, 1], len(expected)))


def test_a_prompt_that_is_read_in_parts(served: Served) -> None:
    prompt = "".join(prompts(5))
    assert CHUNK < len(prompt) < 2 * CHUNK - 16
    drafts = recorded(served, prompt, 16)
    expected = served.loop.drafts(list(prompt.encode()), 16, served.case.models.drafts)
    assert drafts[1 : 1 + len(expected)] == expected  # after the draft that follows the prompt's first part


def drafted_and_generated(server: Server) -> tuple[float, float]:
    """Tokens so far."""
    return server.metric("vllm:spec_decode_num_draft_tokens_total"), server.metric("vllm:generation_tokens_total")


def test_greedy_texts(served: Served) -> None:
    asked = prompts(12)
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in asked]
    accepted = served.server.metric("vllm:spec_decode_num_accepted_tokens_total")
    drafts_per_token = []
    for together in (1, 4, 12):  # those of one batch are sent as one request, so that they begin and end together
        before = drafted_and_generated(served.server)
        batches = [asked[i : i + together] for i in range(0, 12, together)]
        answers = [served.server.complete(batch, max_tokens=48, ignore_eos=True) for batch in batches]
        assert [text for answer in answers for text in tokens(answer)] == expected
        after = drafted_and_generated(served.server)
        drafts_per_token.append((after[0] - before[0]) / (after[1] - before[1]))
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > accepted
    if served.case.schedule is not None:
        assert drafts_per_token[0] > drafts_per_token[1] > 2 * drafts_per_token[2]


def test_drafts_after_steps_without_any(served: Served) -> None:
    """A request that was one of eight, for whom nothing is drafted, is drafted for as ever when it is alone again."""
    if served.case.schedule is None:
        pytest.skip("every step has drafts")
    length, drafts, before = 160, served.case.models.drafts, len(lines(served.folder / "drafts"))
    text = served.exact.greedy(list(SMALL.encode()), length)
    stops = set(range(VOCABULARY)) - set(text)  # end the others' texts, and never this one
    company = [prompt for prompt in prompts(50) if stops & set(served.exact.greedy(list(prompt.encode()), 24)[4:])][:7]
    assert len(company) == 7
    request = {"max_tokens": length, "ignore_eos": True, "stop_token_ids": sorted(stops)}
    answer = served.server.complete([SMALL, *company], **request)  # one request, so that all are there at once
    steps = [json.loads(line) for line in lines(served.folder / "drafts")[before:]]
    in_company = max(i for i, rows in enumerate(steps) if len(rows) > 1) + 1
    assert tokens(answer)[0] == text
    assert any(rows[0] == [] for rows in steps[:in_company] if len(rows) > 5)
    alone = [rows[0] for rows in steps[in_company + 1 :]]
    whole = list(SMALL.encode()) + text
    expected = [served.loop.drafts_after(whole[:end], drafts) for end in range(len(SMALL) + 1, len(whole) + 1)]
    assert len(alone) > 5
    assert all(row in expected for row in alone)


def sample(served: Served, prompt: str | list[int], sampling: Sampling, **more: Any) -> list[Window]:
    """The first `LENGTH` tokens of `SAMPLES` continuations."""
    together = SAMPLES // 8
    body = {"n": together, "max_tokens": LENGTH, "ignore_eos": True, **sampling._asdict(), **more}
    answers = [served.server.complete(prompt, **body) for _ in range(8)]
    return [tuple(choice) for answer in answers for choice in tokens(answer)]


def p_of(served: Served, prompt: str | list[int], sampling: Sampling, windows: list[Window]) -> float:
    """Under the target's exact distribution."""
    ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
    table = cells(served.exact, ids, sampling, SAMPLES)
    assert len(table) > 10
    return p_value(windows, table)


def test_languages_and_temperatures_in_one_batch(served: Served, pytestconfig: pytest.Config) -> None:
    greedy, asked = prompts(4), ends_of(served.case.sampled, pytestconfig)
    with ThreadPoolExecutor(1 + len(asked)) as pool:
        sampled = [pool.submit(sample, served, *one) for one in asked]
        texts = pool.submit(served.server.complete_all, greedy * 4, 4, max_tokens=48, ignore_eos=True)
    expected = [served.exact.greedy(list(prompt.encode()), 48) for prompt in greedy] * 4
    assert [tokens(answer)[0] for answer in texts.result()] == expected
    for (prompt, sampling), windows in zip(asked, sampled, strict=True):
        assert p_of(served, prompt, sampling, windows.result()) > REJECT_BELOW


def test_a_grammar_keeps_the_targets_distribution(served: Served) -> None:
    """Alone, and in one batch with requests without a grammar.

    As a control, drafts are drawn: vLLM cuts draft tokens that the grammar refuses, which changes the distribution.
    """
    (prompt, _), sampling, switch = served.case.sampled[0], Sampling(0.9), served.folder / f"misstate{FREE}"
    letters = [*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]
    grammar = {"structured_outputs": {"regex": "[A-Za-z]{9}"}}

    def p_of_letters(windows: list[Window]) -> float:
        ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
        table = cells(served.exact, ids, sampling, SAMPLES, letters)
        assert len(table) > 10
        return p_value(windows, table)

    assert p_of_letters(sample(served, prompt, sampling, **grammar)) > REJECT_BELOW
    with ThreadPoolExecutor(2) as pool:
        free, bound = (
            pool.submit(sample, served, prompt, sampling),
            pool.submit(sample, served, prompt, sampling, **grammar),
        )
    assert p_of(served, prompt, sampling, free.result()) > REJECT_BELOW
    assert p_of_letters(bound.result()) > REJECT_BELOW
    if not served.case.shows_cuts:
        return
    switch.touch()
    drawn = sample(served, prompt, sampling, **grammar)
    switch.unlink()
    assert p_of_letters(drawn) < REJECT_BELOW


def sample_misstated(served: Served, prompt: str | list[int], sampling: Sampling) -> list[Window]:
    """Windows that a drafter has led astray."""
    switch = served.folder / "misstate"
    switch.touch()
    try:
        return sample(served, prompt, sampling)
    finally:
        switch.unlink()


def test_a_misstated_draft_distribution_fails(served: Served) -> None:
    """Or, where none is stated, texts of another temperature."""
    prompt, sampling = served.case.sampled[0]
    windows = sample_misstated(served, prompt, Sampling(0.8) if served.case.certain else sampling)
    assert p_of(served, prompt, sampling, windows) < REJECT_BELOW


@pytest.mark.thorough
def test_slrs_for_a_target_of_subwords(tmp_path: Path) -> None:
    """A draft model over bytes, in batches of greedy and sampled requests."""
    target = make_text_target(tmp_path / "target", byte_level())
    drafter = make_pair(tmp_path / "drafter", target, "slrs", tokenizer=byte_target(), min_confidence=0.05)
    asked, sampling = [byte_level().encode(prompt) for prompt in prompts(12)], Sampling(0.9)
    with serving(Case(Models(target, drafter, 5), target, WHOLE), tmp_path) as served, ThreadPoolExecutor(1) as pool:
        sampled = pool.submit(sample, served, asked[0], sampling)
        answers = served.server.complete_all(asked, 4, max_tokens=48, ignore_eos=True)
        assert [tokens(answer)[0] for answer in answers] == [served.exact.greedy(ids, 48) for ids in asked]
        assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > 100
        assert p_of(served, asked[0], sampling, sampled.result()) > REJECT_BELOW
        assert p_of(served, asked[0], sampling, sample_misstated(served, asked[0], sampling)) < REJECT_BELOW


@pytest.mark.parametrize("prompt", [SMALL, "".join(prompts(5))], ids=["short", "read in parts"])
def test_a_seed_repeats_whatever_else_is_served(served: Served, prompt: str) -> None:
    body = {"max_tokens": 32, "ignore_eos": True, "temperature": 1.0, "seed": 11}
    alone = tokens(served.server.complete(prompt, **body))[0]
    # Where there is a schedule, as many at a time as get the same number of drafts: the text depends on that number.
    company = prompts(5 if served.case.schedule is None else 1)
    in_company = served.server.complete_all([prompt, *company], 1 + len(company), **body)
    assert tokens(in_company[0])[0] == alone


def test_the_log_tells_the_draft_vocabularies(served: Served) -> None:
    logged = "their output head rows take" in (served.folder / "log").read_text()
    assert logged == (served.loop.vocabularies is not None)


def test_every_family_has_a_case() -> None:
    register_method()
    random_echo.register_method()
    names = {method.name for method in draft_methods()}
    random_echo.forget_method()
    assert names == {name.partition(",")[0] for name in CASES}
