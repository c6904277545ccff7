"""Drafts of the V1 runner as long as they pay: their distributions, with what is copied after the drafter's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.rest import Rest
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.additional import CopySettings
from vllm_mtpc.copying import RunnerCopying

TOKENS, VOCABULARY = torch.tensor([[1, 2], [3, 4]]), 6
GREEDY_UNSEEDED = True, False
PROBS = torch.rand(2, 2, VOCABULARY, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("drafts", [[[1], []], [[1, 2], [3]], [[1, 2], [3, 4, 5, 0]], [[1, 2, 5], []]])
def test_distributions_are_as_wide_as_the_longest_draft(stated: bool, drafts: list[list[int]]) -> None:
    asked: list[Any] = []

    def lengths(*arguments: Any) -> list[list[int]]:
        asked.append(arguments)
        return drafts

    copying: Any = RunnerCopying.__new__(RunnerCopying)
    copying.device, copying.batch = torch.device("cpu"), SimpleNamespace(lengths=lengths)
    peaks = torch.tensor([[0.5, 0.25], [1.0, 0.75]])
    tokens, probs = copying.lengths(Draft(TOKENS, PROBS if stated else None, peaks), 4, {1: "a generator"})
    ((given, sure, longest, seeded),) = asked
    assert (given, sure, longest, seeded) == (TOKENS.tolist(), peaks.tolist(), 4, [False, True])
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


def test_steps_of_a_rest_draft_nothing_unless_a_request_has_a_seed() -> None:
    """Nothing of these texts is ever copied."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, 9.0),))
    settings = CopySettings(step_cost=cost)
    copying = RunnerCopying(Own(2, serial=2), 8, settings, CopyTable(), torch.device("cpu"))
    requests = {name: SimpleNamespace(prompt_token_ids=[1], output_token_ids=[], sampling_params=None) for name in "ab"}
    draft, rested = Draft(torch.zeros(2, 0, dtype=torch.int64), None), []
    for step in range(60):
        tokens = torch.tensor([[100 + step, -1], [200 + step, -1]])
        copying.sampled(["a", "b"], requests, tokens, torch.tensor([False, False]), *GREEDY_UNSEEDED)
        assert copying.own_that_pay(8, seeded=False) == 0
        assert copying.lengths(draft, 8, {}) == ([[], []], None)
        rested.append(copying.resting)
    assert 30 < sum(rested) < 60
    copying.sampled(["a", "b"], requests, tokens, torch.tensor([False, False]), True, True)
    assert not copying.resting
    assert copying.own_that_pay(8, seeded=True) == 2


def test_a_rest_goes_on_without_a_look_at_what_was_said() -> None:
    """Until it is over, another request comes, or one is left alone; then nothing is missing of any text."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)))

    def after(asks: bool) -> tuple[list[bool], dict[str, list[int]], int]:
        copying = RunnerCopying(Own(0), 8, CopySettings(step_cost=cost), CopyTable(), torch.device("cpu"))
        requests = {
            name: SimpleNamespace(prompt_token_ids=[1], output_token_ids=[], sampling_params=None) for name in "abc"
        }
        rested, rested_on = [], 0
        for step in range(80):
            ids = ["a", "b"] if step < 40 else ["a", "b", "c"] if step < 70 else ["c"]
            said = torch.tensor([[100 * row + step] for row, _ in enumerate(ids, start=1)])
            if step == 70:
                requests = {"c": requests["c"]}
            on = asks and copying.rests_on(ids, requests, said.clone())
            if not on:
                copying.sampled(ids, requests, said, torch.zeros(len(ids), dtype=torch.bool), *GREEDY_UNSEEDED)
                copying.lengths(Draft(torch.zeros(len(ids), 0, dtype=torch.int64), None), 8, {})
            rested.append(copying.resting)
            rested_on += on
            for name, (token,) in zip(ids, said.tolist(), strict=True):
                requests[name].output_token_ids.append(token)
            if step == 69:
                copying.batch.rest = Rest()
        return rested, {name: request.copy.text for name, request in copying.batch.requests.items()}, rested_on

    rested, texts, rested_on = after(asks=True)
    assert (rested, texts, 0) == after(asks=False)
    assert 20 < rested_on < sum(rested)
    assert texts == {"c": [1, *range(340, 370), *range(170, 180)]}


@pytest.mark.parametrize("rests", [False, True])
def test_a_name_that_is_used_again_is_another_request(rests: bool) -> None:
    """Also where it comes in a step that nobody looks at: no text or answer of one tenant goes to another."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)))
    copying = RunnerCopying(Own(0), 8, CopySettings(step_cost=cost, store=100), CopyTable(), torch.device("cpu"))
    unread = torch.zeros(2, dtype=torch.bool)

    def request(tenant: str, prompt: list[int]) -> Any:
        sampling = SimpleNamespace(extra_args={"tenant": tenant})
        return SimpleNamespace(prompt_token_ids=prompt, output_token_ids=[], sampling_params=sampling)

    def step(token: int) -> None:
        tokens = torch.tensor([[token], [200]])
        if not rests or not copying.rests_on(["a", "b"], requests, tokens):
            copying.sampled(["a", "b"], requests, tokens, unread, *GREEDY_UNSEEDED)
            copying.lengths(Draft(torch.zeros(2, 0, dtype=torch.int64), None), 8, {})
        requests["a"].output_token_ids.append(token)

    requests = {"a": request("alice", [1]), "b": request("carol", [2])}
    said = 0
    while not said or (rests and (said < 40 or len(copying.unheard) != 2)):  # in the middle of a long rest
        said += 1
        step(100)
    requests["a"] = request("bob", [3])
    step(101)
    copying.batch.rest = Rest()
    step(102)
    assert copying.batch.requests["a"].copy.text == [3, 101, 102]
    assert copying.batch.requests["a"].tenant == "bob"
    store = copying.batch.store
    assert store is not None
    assert [token for token in store.of("alice") if token >= 0] == [100] * said
    assert not store.of("bob")


@pytest.mark.parametrize("fixed", [True, False])
def test_what_the_first_rank_has_timed_is_believed(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the table is to stand as it is, or a request has a seed."""
    monkeypatch.setattr("vllm_mtpc.copying.told_by_first_rank", lambda _: (20.0, 1.0))
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 5.0)), drafting=((1, 0.1),), fixed=fixed)
    copying = RunnerCopying(Own(0), 8, CopySettings(step_cost=cost), CopyTable((0.4,)), torch.device("cpu"))
    request = SimpleNamespace(prompt_token_ids=[1, 2, 3, 1], output_token_ids=[], sampling_params=None)
    draft, drafted = Draft(torch.zeros(1, 0, dtype=torch.int64), None), []
    for seeds in ({}, {0: "a generator"}):
        copying.sampled(["a"], {"a": request}, torch.tensor([[2]]), torch.tensor([False]), True, bool(seeds))
        drafted.append(copying.lengths(draft, 8, seeds)[0])
    assert drafted[1][0]
    assert bool(drafted[0][0]) == fixed
