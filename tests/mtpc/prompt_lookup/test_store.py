"""Earlier answers of a tenant: what is kept, and that it is copied from, by nobody else."""

from __future__ import annotations

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.store import SEPARATOR, TENANTS, OutputStore
from mtpc.prompt_lookup.table import CopyTable

ANSWER = list(range(50, 70))
VOCABULARY = 1000
PROMPT = [1, 2, 3]


def test_the_last_tokens_of_a_tenant_are_kept() -> None:
    store = OutputStore(8)
    assert len(store.of("a")) == 0
    store.add("a", [1, 2, 3])
    store.add("a", (4, 5))
    assert store.of("a").tolist() == [1, 2, 3, SEPARATOR, 4, 5, SEPARATOR]
    store.add("a", [6])
    assert store.of("a").tolist() == [2, 3, SEPARATOR, 4, 5, SEPARATOR, 6, SEPARATOR]
    assert len(store.of("b")) == 0


def test_nobody_shares_nothing() -> None:
    store = OutputStore(8)
    store.add(None, [1, 2, 3])
    assert len(store.of(None)) == 0
    assert store.outputs == {}


def test_who_was_seen_least_recently_is_forgotten() -> None:
    store = OutputStore(8)
    for number in range(TENANTS):
        store.add(str(number), [number])
    store.of("0")
    store.add("new", [7])
    assert len(store.outputs) == TENANTS
    assert len(store.of("0")) == 2
    assert len(store.of("1")) == 0


def serving(*tenants: str | None) -> DraftLengths:
    """One request of each tenant with the same prompt, the first of which has been answered."""
    batch = DraftLengths(DraftBudget(0), 8, StepCost(), CopyTable(), VOCABULARY, OutputStore(1000))
    batch.begin()
    batch.add(0, lambda: PROMPT, ANSWER[:1], False, tenants[0])
    batch.begin()
    batch.add(0, lambda: PROMPT, ANSWER[1:], False, tenants[0])
    batch.forget([0])
    batch.begin()
    for name, tenant in enumerate(tenants[1:], start=1):
        batch.add(name, lambda: PROMPT, ANSWER[:2], False, tenant)
    return batch


def test_an_answer_goes_on_as_an_earlier_one_of_the_same_tenant() -> None:
    tokens, chances = serving("a", "a", "b", None).copied(8)
    assert tokens[0].tolist() == ANSWER[2:10]
    assert (chances[0] > 0.2).all()
    assert not chances[1:].any()


def test_requests_of_nobody_do_not_read_each_other() -> None:
    assert not serving(None, None).copied(8)[1].any()


def test_nothing_is_copied_across_the_end_of_an_answer() -> None:
    batch = serving("a", "a")
    batch.begin()
    batch.add(1, lambda: PROMPT, ANSWER[2:17], False, "a")
    tokens, chances = batch.copied(8)
    assert tokens[0].tolist() == [*ANSWER[17:], 0, 0, 0, 0, 0]
    assert (chances[0, :3] > 0.2).all()
    assert not chances[0, 3:].any()
    assert batch.cut([[]], 8, [False]) == [ANSWER[17:]]


def test_the_text_of_a_request_is_its_own() -> None:
    batch = serving("a", "a")
    copy = batch.requests[1].copy
    assert copy.text == [*PROMPT, *ANSWER[:2]]
    assert copy.output == ANSWER[:2]
