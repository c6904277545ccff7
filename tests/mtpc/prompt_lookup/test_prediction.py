"""Texts that requests predict: how they are read, and that they alone are copied from, by their request alone."""

from __future__ import annotations

import logging
from array import array
from typing import Any

import pytest

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS
from mtpc.errors import MTPCError
from mtpc.prompt_lookup.prediction import CONTEXT, MAX_CHARACTERS, PREDICTION, Predictions
from mtpc.prompt_lookup.store import OutputStore
from mtpc.prompt_lookup.table import CopyTable

VOCABULARY = 1000
PROMPT, OUTPUT = list(range(100, 130)), list(range(10, 40))


class Bytes:
    """A tokenizer that refuses what a real one refuses."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())


def of(parameters: Any, prompt: Any = ()) -> list[int]:
    return Predictions(Bytes, 256).of(parameters, prompt)


def test_what_is_read() -> None:
    assert of({PREDICTION: "abc", "tenant": "a"}, PROMPT) == [*PROMPT[-CONTEXT:], 97, 98, 99]
    assert of({PREDICTION: "abc"}, array("q", [5])) == [5, 97, 98, 99]
    for nothing in (None, {}, {PREDICTION: None}, {PREDICTION: ""}, "prediction", 7):
        assert of(nothing, PROMPT) == []
    assert of({PREDICTION: "a\ud800b"}) == list(b"a?b")  # half a surrogate pair
    assert len(of({PREDICTION: "a" * (MAX_CHARACTERS + 9)})) == MAX_CHARACTERS
    for text, kept in (("abcab", [97, 98]), ("c", [])):  # the target has fewer tokens than its tokenizer
        assert Predictions(Bytes, 99).of({PREDICTION: text}, ()) == kept


def test_what_cannot_be_read_is_ignored_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    loads = []

    def broken() -> Any:
        loads.append(1)
        raise MTPCError("folder holds no tokenizer.")

    predictions = Predictions(broken, 256)
    with caplog.at_level(logging.WARNING):
        for wrong in (7, 1.5, ["a"], {"type": "content"}):
            assert predictions.of({PREDICTION: wrong}, PROMPT) == []
        assert not loads and "A request's 'prediction' is ignored: it must be a text, not int." in caplog.text
        for _ in range(2):
            assert predictions.of({PREDICTION: "text"}, PROMPT) == []
    assert len(loads) == 1
    assert caplog.text.count("Predictions of requests are ignored: folder holds no tokenizer.") == 1


def lengths(store: OutputStore | None = None) -> DraftLengths:
    return DraftLengths(DraftBudget(0), 16, FREE_DRAFTS, CopyTable(), VOCABULARY, store)


def drafts(made: DraftLengths, name: str, text: list[int], emitted: list[int], predicted: list[int]) -> list[int]:
    """What follows a request's text in the next step."""
    made.begin()
    made.add(name, text.copy, emitted, False, predicted=predicted.copy)
    return made.cut([[]], 16, [False])[0]


@pytest.mark.parametrize("first", [1, 3])
def test_the_output_is_copied_from_its_first_token_on(first: int) -> None:
    made, predicted = lengths(), [*PROMPT[-CONTEXT:], *OUTPUT]
    assert drafts(made, "a", PROMPT, OUTPUT[:first], predicted) == OUTPUT[first : first + 16]
    assert drafts(made, "a", PROMPT, OUTPUT[first : first + 8], predicted) == OUTPUT[first + 8 : first + 24]
    assert drafts(made, "b", PROMPT, OUTPUT[:first], []) == []  # nobody else copies it


def test_an_output_that_differs_is_found_again() -> None:
    made, predicted = lengths(), [*PROMPT[-CONTEXT:], *OUTPUT]
    assert drafts(made, "a", PROMPT, OUTPUT[:4], predicted)
    assert drafts(made, "a", PROMPT, [*OUTPUT[4:9], 77], predicted) == []
    assert drafts(made, "a", PROMPT, OUTPUT[10:12], predicted)[:3] == OUTPUT[12:15]


def test_in_addition_to_earlier_outputs_of_a_tenant() -> None:
    """No copy goes from one of these texts into another."""
    made, predicted = lengths(OutputStore(100)), [*PROMPT[-CONTEXT:], *OUTPUT]
    made.begin()
    made.add("a", PROMPT.copy, [], False, "tenant")
    made.cut([[]], 16, [False])
    made.begin()
    made.add("a", PROMPT.copy, [1, 2, 3, 4], False, "tenant")
    made.forget(["a"])
    made.begin()
    made.add("b", PROMPT.copy, [1, 2], False, "tenant", predicted.copy)
    assert made.cut([[]], 16, [False]) == [[3, 4]]
    assert drafts(made, "b", PROMPT, OUTPUT[-4:-2], predicted) == OUTPUT[-2:]
