"""Drafts of a text part for vLLM's requests: whatever the engine does to a request, the part has its whole text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextDraft
from mtpc.prompt_lookup.prediction import Predictions
from tests.support.random_echo import forget_method, register_method
from vllm_mtpc.v1.noise import draft_noise
from vllm_mtpc.v1.text_drafts import TextDrafts

VOCABULARY, DRAFTS = 9, 3
PROMPTS = {"a": [1, 2, 3, 1, 2], "b": [4, 5, 4, 5, 6, 4], "c": [7, 8, 7]}


def new_part() -> Any:
    """One that has read nothing."""
    register_method()
    return sys.modules["echo"].EchoPart(VOCABULARY)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """The example draft method, while a test runs."""
    register_method()
    from mtpc.methods import draft_methods

    draft_methods()  # imports it
    yield
    forget_method()


class Runner:
    """As much of vLLM's as the drafts see: it adds emitted tokens to a request after the request was drafted for."""

    def __init__(self) -> None:
        self.part = new_part()
        self.drafts = TextDrafts(TextDrafting(self.part, None, ragged=True), Predictions(dict, 99))
        self.requests: dict[str, Any] = {}

    def begin(self, name: str, prompt: list[int] | None = None) -> None:
        """A new request, of one of `PROMPTS` unless it is given."""
        prompt = prompt or PROMPTS[name]
        self.requests[name] = SimpleNamespace(
            prompt_token_ids=list(prompt), num_prompt_tokens=len(prompt), output_token_ids=[], sampling_params=None
        )

    def step(
        self,
        emitted: dict[str, list[int] | None],
        temperatures: Sequence[float] = (0.0, 0.0, 0.0),
        num_drafts: int = DRAFTS,
        seeds: Sequence[int] = (),
    ) -> TextDraft:
        """The drafts after each request's emitted tokens; None: a part of its prompt is read.  They must be right."""
        ids, width = list(emitted), max(len(tokens or ()) for tokens in emitted.values()) + 1
        padded = torch.tensor([(tokens or [6]) + [-1] * (width - len(tokens or [6])) for tokens in emitted.values()])
        self.drafts.begin_step(ids, self.requests, padded, torch.tensor([emitted[name] is None for name in ids]))
        generators = {row: torch.Generator().manual_seed(seed) for row, seed in enumerate(seeds)}
        temperatures = temperatures[: len(ids)]
        draft = self.drafts.draft(num_drafts, temperatures, generators)
        for name, tokens in emitted.items():
            self.requests[name].output_token_ids += tokens or []
        self.check(draft, emitted, temperatures, num_drafts, generators)
        return draft

    def check(
        self, draft: TextDraft, emitted: Any, temperatures: Sequence[float], num_drafts: int, generators: Any
    ) -> None:
        """Each draft is that of a part which reads the whole text for the first time."""
        assert len(draft.tokens) == len(emitted)
        for row, (name, tokens) in enumerate(emitted.items()):
            if tokens is None or not num_drafts:
                assert draft.tokens[row] == []
                continue
            text, fresh = self.text(name), new_part()
            fresh.add(name, lambda text=text: text, tokens)
            generator = {0: generators[row]} if row in generators else {}
            noise = draft_noise(torch.tensor([len(text) - 2]), num_drafts, generator)
            expected = fresh.draft([name], [temperatures[row]], [num_drafts], noise)
            if temperatures[row] and row not in generators:
                continue
            assert draft.tokens[row] == expected.tokens[0], name
            if temperatures[row]:
                assert torch.equal(draft.probs[row, : len(draft.tokens[row])], expected.probs[0])

    def text(self, name: str) -> list[int]:
        """All tokens of a request."""
        return [*self.requests[name].prompt_token_ids, *self.requests[name].output_token_ids]


@pytest.fixture
def runner() -> Runner:
    """With two requests in it."""
    made = Runner()
    made.begin("a")
    made.begin("b")
    return made


def test_drafts_of_different_lengths_and_temperatures(runner: Runner) -> None:
    lengths, seeds = set(), (5, 6)
    for temperatures in ((0.0, 0.0), (0.0, 0.7), (1.0, 0.5)):
        for tokens in ([1], [2, 3], [4, 4, 5]):
            draft = runner.step({"a": tokens, "b": tokens[::-1]}, temperatures, seeds=seeds)
            lengths |= set(map(len, draft.tokens))
            assert (draft.probs is None) == (not any(temperatures))
            if draft.probs is not None:
                assert draft.probs.shape == (2, max(map(len, draft.tokens)), VOCABULARY)
    assert lengths == set(range(DRAFTS + 1))


def test_nothing_is_drafted_for_a_prompt_that_is_read_in_parts(runner: Runner) -> None:
    runner.begin("c")
    for _ in range(2):
        draft = runner.step({"a": [3], "c": None, "b": [5]}, (0.5, 0.5, 0.7), seeds=(1, 2, 3))
        assert "c" not in runner.part.texts
        assert draft.probs is not None and len(draft.probs) == 3
    runner.step({"a": [3], "c": [7], "b": [5]}, (0.5, 0.5, 0.7), seeds=(1, 2, 3))
    assert runner.part.texts["c"] == [7, 8, 7, 7]
    runner.begin("d", [1])
    assert runner.step({"d": None}, (1.0,)) == TextDraft([[]], None)


def test_a_preempted_request_goes_on(runner: Runner) -> None:
    """It is left out of some steps, and its text is read again, in parts."""
    runner.step({"a": [3], "b": [5, 5]})
    for emitted in ({"a": [1, 2]}, {"a": [3], "b": None}, {"a": [3], "b": None}, {"b": [5], "a": [2]}):
        runner.step(emitted)
    assert runner.part.texts["b"] == [*PROMPTS["b"], 5, 5, 5]


def test_tokens_of_steps_without_drafts_are_added_later(runner: Runner) -> None:
    """The runner leaves the drafter out near the longest text, and a schedule may give a batch no draft."""
    runner.step({"a": [3], "b": [5]})
    for name, tokens in (("a", [1, 2]), ("b", [4])):
        runner.requests[name].output_token_ids += tokens
    runner.begin("c")
    runner.requests["c"].output_token_ids += [8]
    runner.step({"a": [3], "b": [5], "c": [7]})
    assert runner.step({"a": [3], "b": [5]}, (1.0, 1.0), num_drafts=0) == TextDraft([[], []], None)
    runner.step({"a": [1], "b": [5]})
    assert {name: runner.text(name) for name in "abc"} == runner.part.texts


def test_requests_that_are_over_are_forgotten(runner: Runner) -> None:
    """An id may be used again, also for a longer text that begins in the same way."""
    runner.step({"a": [3], "b": [5]})
    runner.begin("b", [*PROMPTS["b"], 5, 1])
    del runner.requests["a"]
    runner.step({"b": [2, 5]})
    assert runner.part.texts == {"b": [*PROMPTS["b"], 5, 1, 2, 5]}


def test_a_text_that_becomes_another_is_read_anew(runner: Runner) -> None:
    """The engine takes tokens back where it has lost their keys and values, or makes the output part of the prompt."""
    runner.step({"a": [3, 1, 2], "b": [5, 4, 4]})
    del runner.requests["a"].output_token_ids[1:]
    continued = runner.requests["b"]
    continued.prompt_token_ids = [*continued.prompt_token_ids, *continued.output_token_ids[:2], 8]
    continued.num_prompt_tokens += 3
    continued.output_token_ids.clear()
    runner.step({"a": [3], "b": [8]})
    assert runner.part.texts == {"a": [*PROMPTS["a"], 3, 3], "b": [*PROMPTS["b"], 5, 4, 8, 8]}


def test_a_prompt_of_embeddings_has_no_text(runner: Runner) -> None:
    runner.requests["b"].prompt_token_ids = None
    runner.drafts.begin_step(["b", "a"], runner.requests, torch.tensor([[5], [3]]), torch.tensor([False, False]))
    draft = runner.drafts.draft(DRAFTS, (1.0, 1.0), {})
    assert draft.tokens[0] == [] and set(runner.part.texts) == {"a"}


def test_each_draft_is_as_long_as_its_request_allows(runner: Runner) -> None:
    """Without adaptive draft lengths; the text continues as before."""
    lengths: dict[str, list[int]] = {"a": [], "b": []}
    runner.requests["a"].sampling_params = SimpleNamespace(extra_args={"max_draft_tokens": 1})
    runner.requests["b"].sampling_params = SimpleNamespace(extra_args={"max_draft_tokens": 0})
    runner.begin("c")
    ids = list("abc")
    for _ in range(4):
        emitted = torch.tensor([[3], [5], [7]])
        runner.drafts.begin_step(ids, runner.requests, emitted, torch.zeros(3, dtype=torch.bool))
        tokens = runner.drafts.draft(DRAFTS, (0.0, 0.0, 0.0), {}).tokens
        for name, draft, token in zip(ids, tokens, emitted[:, 0].tolist(), strict=True):
            lengths.setdefault(name, []).append(len(draft))
            runner.requests[name].output_token_ids.append(token)
    assert max(lengths["a"]) == 1 and max(lengths["b"]) == 0 and max(lengths["c"]) == DRAFTS
    del runner.requests["a"], runner.requests["b"]
    runner.drafts.begin_step(["c"], runner.requests, torch.tensor([[7]]), torch.tensor([False]))
    assert len(runner.drafts.drafting._limits) == 1  # type: ignore[union-attr]
