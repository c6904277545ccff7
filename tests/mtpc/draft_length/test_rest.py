"""Where nothing has been drafted for long, few steps look for what might be; and nothing that is said is missed."""

from __future__ import annotations

from mtpc.draft_length.batch import BatchCopying
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.rest import LONGEST, PATIENCE, Rest
from mtpc.prompt_lookup.store import Store
from mtpc.prompt_lookup.table import CopyTable

COST = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)))


def steps_between_looks(count: int, drafted: bool = False) -> list[int]:
    """Of so many looks, with the same outcome."""
    rest, steps = Rest(), []
    for _ in range(count):
        steps.append(0)
        while rest.step():
            steps[-1] += 1
        rest.looked(drafted)
    return steps


def test_looks_in_vain_become_rare() -> None:
    assert steps_between_looks(PATIENCE + 1) == [0] * (PATIENCE + 1)
    assert steps_between_looks(40)[PATIENCE + 1 :][:LONGEST] == list(range(1, LONGEST + 1))
    assert max(steps_between_looks(100)) == LONGEST
    assert not any(steps_between_looks(100, drafted=True))


def served(names: list[str], texts: dict[str, list[int]], store: Store | None = None) -> tuple[BatchCopying, list[int]]:
    """Requests whose texts are said token by token, and the steps in which somebody looked."""
    batch, looked = BatchCopying(Own(0), 6, COST, CopyTable((0.05, 0.95)), store), []
    for step in range(len(texts[names[0]])):
        said = {name: [texts[name][step]] for name in names}
        if batch.rests(said):
            continue
        looked.append(step)
        batch.begin()
        for name in names:
            batch.add(name, lambda: [1], said[name], False, "somebody")
        batch.lengths([[] for _ in names], [], 6, [False for _ in names])
    return batch, looked


NEW = {"a": list(range(100, 180)), "b": list(range(200, 280))}


def test_what_was_said_in_a_rest_is_caught_up_with() -> None:
    batch, looked = served(["a", "b"], NEW)
    assert len(looked) < 30
    for name, text in NEW.items():
        request = batch.requests[name]
        assert [*request.copy.text, *request.missed] == [1, *text]
        assert request.copy.text == [1, *text][: looked[-1] + 2]


def test_text_that_begins_to_repeat_is_seen_after_a_rest_at_the_latest() -> None:
    texts = {name: text[:40] + text[:40] for name, text in NEW.items()}
    _, looked = served(["a", "b"], texts)
    first = next(step for step in looked if step >= 42)
    assert first <= 42 + LONGEST
    assert set(range(first, first + 10)) <= set(looked)


def test_a_request_by_itself_is_always_looked_at() -> None:
    assert served(["a"], NEW)[1] == list(range(80))


def look(batch: BatchCopying, said: dict[str, list[int]]) -> None:
    """A step in which somebody looks and nothing is drafted."""
    batch.begin()
    for name, tokens in said.items():
        batch.add(name, list, tokens, False)
    batch.lengths([[] for _ in said], [], 6, [False for _ in said])


def test_a_request_that_joins_or_leaves_ends_the_rest() -> None:
    batch, _ = served(["a", "b"], NEW)
    while not batch.rests({"a": [7], "b": [8]}):
        look(batch, {"a": [7], "b": [8]})
    said = {"a": [9], "b": [9], "c": [1]}
    assert not batch.rests(said)
    look(batch, said)
    assert not batch.rests({"a": [9], "c": [1]})


def test_what_one_request_had_to_copy_alone_is_no_reason_for_two_to_rest() -> None:
    batch, _ = served(["a"], NEW)
    for step in range(PATIENCE + 1):
        said = {"a": [300 + step], "b": [400 + step]}
        assert not batch.rests(said)
        look(batch, said)
    assert batch.rests({"a": [305], "b": [405]})


def test_an_answer_that_ends_in_a_rest_is_kept_whole() -> None:
    store = Store(1000)
    batch, looked = served(["a", "b"], NEW, store)
    assert looked[-1] < 79
    batch.forget(["a"])
    assert store.of("somebody").tolist()[: len(NEW["a"])] == NEW["a"]
