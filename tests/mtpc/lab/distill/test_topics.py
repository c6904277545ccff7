"""What user turns are about."""

from __future__ import annotations

import ast
from collections import Counter

import numpy as np
import pytest

from mtpc.lab.distill.source import FUNCTION_LINES, QUESTIONS, functions, source_code_question
from mtpc.lab.distill.topics import MAX_CORRECTION, OPENINGS, SHARES, choose_opening, kind_probabilities


def test_the_shares_are_the_papers() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    assert SHARES["code"] + SHARES["source"] == pytest.approx(0.13)
    assert SHARES["chat"] + SHARES["document"] == pytest.approx(0.42)
    languages = ("spanish", "french", "german", "italian", "portuguese")
    assert sum(SHARES[language] for language in languages) == pytest.approx(0.27)


def test_kinds_come_by_their_shares_while_nothing_is_there() -> None:
    assert kind_probabilities({}) == pytest.approx(SHARES)
    generator = np.random.default_rng(0)
    kinds = Counter(choose_opening(generator, {}).kind for _ in range(3000))
    assert {kind: kinds[kind] / 3000 for kind in SHARES} == pytest.approx(SHARES, abs=0.03)


def test_kinds_that_are_behind_come_more_often() -> None:
    odds = kind_probabilities({"chat": 9000, "french": 10})
    assert odds["french"] / odds["chat"] > SHARES["french"] / SHARES["chat"] * MAX_CORRECTION
    assert odds["french"] / odds["chat"] <= SHARES["french"] / SHARES["chat"] * MAX_CORRECTION**2 * (1 + 1e-9)


def test_openings_have_their_subjects_put_in() -> None:
    generator = np.random.default_rng(0)
    words = [choose_opening(generator, {}) for _ in range(2000)]
    assert not any("{" in each.words for each in words)
    assert any(each.words == "" for each in words if each.kind == "chat")
    assert all(each.words == "" for each in words if each.kind in ("source", "document"))
    assert set(OPENINGS) | {"source", "document"} == set(SHARES)
    for openings, subjects in OPENINGS.values():
        assert len(set(subjects)) == len(subjects)
        assert subjects or not any("{}" in opening for opening in openings)


def test_questions_about_source_hold_a_whole_function() -> None:
    assert len(functions()) > 1000
    for function in functions():  # also of modules that hold form feeds
        assert isinstance(ast.parse(function).body[0], ast.FunctionDef)
    generator = np.random.default_rng(0)
    for _ in range(50):
        question, _, code = source_code_question(generator).partition("\n\n```python\n")
        assert question in QUESTIONS
        function = code.removesuffix("\n```")
        assert len(function.splitlines()) in FUNCTION_LINES
        assert isinstance(ast.parse(function).body[0], ast.FunctionDef)
