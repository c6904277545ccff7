"""Drafts of the V1 runner as long as is worth it: their distributions, with what is copied after the drafter's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.cost import DEFAULT_COSTS, FREE_DRAFTS, StepCost
from mtpc.draft_length.request import LEARNING_RATE, PRIOR_RATE
from mtpc.prompt_lookup.prediction import Predictions
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.additional_config import VLLMDraftSettings
from vllm_mtpc.v1.draft_lengths import BatchLengths

TOKENS, VOCABULARY = torch.tensor([[1, 2], [3, 4]]), 6
PROBS = torch.rand(2, 2, VOCABULARY, generator=torch.Generator().manual_seed(0))
COST = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, 9.0),))
NO_DRAFT = Draft(torch.zeros(2, 0, dtype=torch.int64), None)


def batch_lengths(
    own: int = 0, copies: bool = True, device: str = "cpu", predictions: Predictions | None = None, **settings: Any
) -> BatchLengths:
    """Return the draft lengths of a batch; own: draft steps of the drafter."""
    budget, given, table = DraftBudget(own, steps=own), VLLMDraftSettings(**settings), CopyTable()
    predictions = predictions or Predictions(dict, VOCABULARY)
    return BatchLengths(budget, 8, given, table, copies, torch.device(device), predictions)


def request(prompt: list[int], tenant: str | None = None) -> Any:
    """One of vLLM's."""
    sampling = None if tenant is None else SimpleNamespace(extra_args={"tenant": tenant})
    return SimpleNamespace(prompt_token_ids=prompt, output_token_ids=[], sampling_params=sampling)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize(
    "drafts", [[[1], []], [[1, 2], [3]], [[1, 2], [3, 4, 5, 0]], [[1, 2, 5], []], [[1, 2, 3], [3, 4, 5, 0]]]
)
def test_distributions_are_as_wide_as_the_longest_draft(stated: bool, drafts: list[list[int]]) -> None:
    asked: list[Any] = []

    def lengths(*arguments: Any) -> list[list[int]]:
        asked.append(arguments)
        return drafts

    made: Any = BatchLengths.__new__(BatchLengths)
    made.device, made.controller = torch.device("cpu"), SimpleNamespace(cut=lengths)
    tokens, probs = made.cut(Draft(TOKENS, PROBS if stated else None), 4, {1: "a generator"})
    assert asked == [(TOKENS.tolist(), 4, [False, True])]
    assert tokens == drafts
    if not stated:
        assert probs is None
        return
    width = max(map(len, drafts))
    assert probs.shape == (2, width, VOCABULARY)
    assert torch.equal(probs[:, :2], PROBS[:, :width])
    for row, draft in enumerate(drafts):
        for place, token in enumerate(draft[2:], start=2):
            assert probs[row, place].tolist() == [float(other == token) for other in range(VOCABULARY)]


def test_a_request_with_a_seed_gets_the_whole_draft() -> None:
    """Drafting is never worth it here."""
    made = batch_lengths(own=2, step_cost=COST)
    requests = {name: request([1]) for name in "ab"}
    tokens = torch.tensor([[100, -1], [200, -1]])
    made.begin_step(["a", "b"], requests, tokens, torch.tensor([False, False]), True)
    assert made.plan(8, is_fixed=False) == 0
    assert made.cut(NO_DRAFT, 8, {}) == ([[], []], None)
    assert made.plan(8, is_fixed=True) == 2


def test_a_name_that_is_used_again_is_another_request() -> None:
    """No text or answer of one tenant goes to another."""
    made = batch_lengths(step_cost=COST, store=100)

    def step(token: int) -> None:
        tokens = torch.tensor([[token], [200]])
        made.begin_step(["a", "b"], requests, tokens, torch.zeros(2, dtype=torch.bool), True)
        made.cut(NO_DRAFT, 8, {})
        requests["a"].output_token_ids.append(token)

    requests = {"a": request([1], "alice"), "b": request([2], "carol")}
    step(100)
    step(100)
    requests["a"] = request([3], "bob")
    step(101)
    step(102)
    found = made.controller.requests["a"]
    assert found.copy is not None and found.copy.text == [3, 101, 102]
    assert found.tenant == "bob"
    store = made.controller.store
    assert store is not None
    assert [token for token in store.of("alice") if token >= 0] == [100, 100]
    assert not store.of("bob")


def test_steps_that_vllm_leaves_out_are_part_of_the_text() -> None:
    """With the tokens of the next one; only what became of the last draft is learned from."""
    made, requests = batch_lengths(own=2, adaptive=False), {name: request([1]) for name in "abc"}

    def step(*tokens: int, waiting: bool = False) -> None:
        emitted = torch.tensor([list(tokens)] * 3)
        made.begin_step(list("abc"), requests, emitted, torch.tensor([False, False, waiting]), True)
        made.plan(2, is_fixed=False)
        made.cut(Draft(torch.tensor([[3, 4], [3, 5], [3, 4]]), None), 2, {})

    def skip(*tokens: int) -> None:
        for one in requests.values():
            one.output_token_ids += tokens

    step(2, -1, waiting=True)
    skip(2)  # bookkeeping of this step
    requests["c"].output_token_ids.clear()
    skip(3, 4, 5)
    skip(5)
    step(1, -1, -1)
    found = made.controller.requests
    rate = PRIOR_RATE + LEARNING_RATE * (1 - PRIOR_RATE)
    assert found["a"].copy is not None and found["a"].copy.text == [1, 2, 3, 4, 5, 5, 1]
    assert found["c"].copy is not None and found["c"].copy.text == [1, 3, 4, 5, 5, 1]
    assert found["a"].rate == pytest.approx(rate + LEARNING_RATE * (1 - rate))
    assert found["b"].rate == pytest.approx(rate - LEARNING_RATE * rate)
    skip(1)
    del requests["a"].output_token_ids[2:]  # taken back
    step(7, -1, -1)
    assert made.controller.requests["a"].copy is not None
    assert [found[name].copy.text[-2:] for name in "ab"] == [[3, 7], [1, 7]]


def test_an_output_that_ends_in_steps_that_vllm_leaves_out_is_stored_whole() -> None:
    made, requests = batch_lengths(adaptive=False, store=100), {"a": request([1], "alice")}
    made.begin_step(["a"], requests, torch.tensor([[2, 3]]), torch.tensor([False]), True)
    requests.pop("a").output_token_ids += [2, 3, 4, 5]
    made.begin_step(["b"], requests | {"b": request([1], "bob")}, torch.tensor([[7]]), torch.tensor([False]), True)
    store = made.controller.store
    assert store is not None
    assert [token for token in store.of("alice") if token >= 0] == [2, 3, 4, 5]


def test_without_prompt_lookup_nothing_is_copied() -> None:
    made = batch_lengths(own=3, copies=False, adaptive=False)
    assert made.controller.cost is FREE_DRAFTS
    requests = {name: request([1, 2, 1]) for name in "ab"}
    made.begin_step(["a", "b"], requests, torch.tensor([[2], [2]]), torch.tensor([False, True]), True)
    assert made.copied(3) is None
    assert made.plan(3, is_fixed=False) == 3
    drafts, _ = made.cut(Draft(torch.tensor([[7, 8, 9], [7, 8, 9]]), None), 3, {})
    assert drafts == [[7, 8, 9], []]


@pytest.mark.parametrize(
    ("settings", "timed"), [({}, True), ({"adaptive": False}, False), ({"step_cost": COST}, False)]
)
def test_steps_are_timed_unless_the_user_says_what_they_cost(settings: dict[str, Any], timed: bool) -> None:
    assert batch_lengths(**settings).is_timed == timed


@pytest.mark.parametrize(
    ("device", "settings", "cost"),
    [("cpu", {}, DEFAULT_COSTS), ("cuda", {}, FREE_DRAFTS), ("cuda", {"step_cost": COST}, COST)],
)
def test_what_steps_are_assumed_to_cost(device: str, settings: dict[str, Any], cost: StepCost) -> None:
    """The assumed costs are a CPU's; on a GPU nothing measures them, so every draft is as long as it may be."""
    assert batch_lengths(device=device, **settings).controller.cost == cost


def test_a_predicted_output_is_copied_from() -> None:
    """By its request alone, in a batch with others."""

    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return list(text.encode())

    predictions = Predictions(lambda: SimpleNamespace(encode=encode), 256)
    made, prompt = batch_lengths(adaptive=False, predictions=predictions), [1, 2, 3]
    requests = {"a": request(prompt), "b": request(prompt), "c": request(prompt)}
    requests["a"].sampling_params = SimpleNamespace(extra_args={"prediction": "a prediction"})
    requests["c"].sampling_params = SimpleNamespace(extra_args={"prediction": ["no text"]})
    tokens = torch.tensor([list(b"a p"), list(b"a p"), list(b"a p")])
    made.begin_step(["a", "b", "c"], requests, tokens, torch.zeros(3, dtype=torch.bool), True)
    (first, *others), _ = made.cut(Draft(torch.zeros(3, 0, dtype=torch.int64), None), 8, {})
    assert (bytes(first), others) == (b"redictio", [[], []])


@pytest.mark.parametrize("stated", [True, False])
def test_each_draft_is_as_long_as_its_request_allows(stated: bool) -> None:
    """In one batch: none, one token, a limit that is none, and no limit."""
    made, limits = batch_lengths(own=2, copies=False, adaptive=False), (0, 1, "1", None)
    requests = {name: request([1]) for name in "abcd"}
    for one, limit in zip(requests.values(), limits, strict=True):
        one.sampling_params = SimpleNamespace(extra_args={"max_draft_tokens": limit})
    tokens, probs = torch.tensor([[1, 2]] * 4), torch.rand(4, 2, VOCABULARY)
    made.begin_step(list("abcd"), requests, torch.tensor([[5]] * 4), torch.zeros(4, dtype=torch.bool), not stated)
    assert made.plan(2, is_fixed=False) == 2
    drafts, kept = made.cut(Draft(tokens, probs if stated else None), 2, {})
    assert drafts == [[], [1], [1, 2], [1, 2]]
    assert kept is None if not stated else torch.equal(kept, probs)
