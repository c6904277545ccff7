"""The language of a text, from nothing but the ranks of its tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpc.vocabulary.language import START_MARGIN, LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.template import Template

VOCAB = 400
SHARED = list(range(100))  # punctuation and pieces of words that all languages use
ORDERS = {name: [*SHARED[::step], *range(100 + 80 * i, 180 + 80 * i)] for i, (name, step) in enumerate(
    (("english", 1), ("french", -1), ("code", 3))
)}  # fmt: skip
RANKINGS = Rankings(VOCAB, {name: Ranking(tuple(order)) for name, order in ORDERS.items()})


def write(language: str, length: int, seed: int = 0) -> list[int]:
    """Text whose tokens follow Zipf's law over the language's ranking: a function of the seed."""
    order = ORDERS[language]
    p = 1 / np.arange(2, len(order) + 2)
    return np.random.default_rng(seed).choice(order, length, p=p / p.sum()).tolist()


@pytest.fixture
def detector() -> LanguageDetector:
    """One that has a language for every text."""
    return LanguageDetector(RANKINGS, surcharge=1.0)


@pytest.mark.parametrize("language", list(ORDERS))
def test_a_short_prompt_is_enough(detector: LanguageDetector, language: str) -> None:
    found = [detector.decide(detector.read(detector.begin(), write(language, 25, seed))) for seed in range(50)]
    share = np.mean([detector.languages[number] == language for number in found])
    assert share > 0.9


def test_the_cost_of_a_token_is_the_logarithm_of_its_rank(detector: LanguageDetector) -> None:
    evidence = detector.read(detector.begin(), [ORDERS["english"][4]])
    assert evidence[0] == pytest.approx(math.log(5))
    outside = detector.read(detector.begin(), [VOCAB - 1])
    assert outside[:3] == pytest.approx([math.log(VOCAB + 1)] * 3)


def test_among_all_tokens_each_costs_more_than_half_of_the_most() -> None:
    detector = LanguageDetector(RANKINGS, surcharge=0.1)
    for token in (0, ORDERS["english"][4], VOCAB - 1):
        evidence = detector.read(detector.begin(), [token])
        assert evidence[detector.everything] == pytest.approx(0.6 * math.log(VOCAB + 1))


def test_what_is_no_token_tells_nothing(detector: LanguageDetector) -> None:
    assert detector.read(detector.begin(), [VOCAB, -1, VOCAB + 500]).std() < 1e-5


def test_reading_in_parts_is_reading_at_once(detector: LanguageDetector) -> None:
    tokens = write("french", 60)
    whole = detector.read(detector.begin(), tokens)
    evidence = detector.begin()
    for part in (tokens[:7], [], tokens[7:8], tokens[8:]):
        evidence = detector.read(evidence, part)
    assert evidence == pytest.approx(whole)


def test_what_was_read_counts_half_after_the_half_life() -> None:
    detector = LanguageDetector(RANKINGS, half_life=10)
    old = detector.read(detector.begin(), write("code", 5))
    later = detector.read(old, [VOCAB - 1] * 10)
    alone = detector.read(detector.begin(), [VOCAB - 1] * 10)
    assert later - alone == pytest.approx(old / 2)


def test_an_answer_in_another_language_changes_the_map(detector: LanguageDetector) -> None:
    evidence = detector.read(detector.begin(), write("english", 200))
    current = detector.decide(evidence)
    assert detector.languages[current] == "english"
    for token in write("french", 60):
        evidence = detector.read(evidence, [token])
        current = detector.decide(evidence, current)
    assert detector.languages[current] == "french"


def test_a_change_must_be_worth_the_margin(detector: LanguageDetector) -> None:
    near = np.array([10.0, 10.0 - detector.margin / 2, 30.0, 30.0])
    assert detector.decide(near) == 1
    assert detector.decide(near, 0) == 0
    assert detector.decide(near, 2) == 1
    assert detector.decide(np.array([10.0, 9.9 - detector.margin, 30.0, 30.0]), 0) == 1


def test_a_text_begins_in_a_language_unless_none_suits_it(detector: LanguageDetector) -> None:
    """Later a change must be worth more: near a tie a text stays with what it has."""
    assert detector.margin > START_MARGIN
    for better, first, later in (
        (0.9 * START_MARGIN, 1, 1),
        (1.1 * START_MARGIN, detector.everything, 1),
        (1.1 * detector.margin, detector.everything, detector.everything),
    ):
        evidence = np.array([12.0, 10.0, 30.0, 10.0 - better])
        assert (detector.decide(evidence), detector.decide(evidence, 1)) == (first, later)
    assert detector.decide(np.array([12.0, 10.0, 30.0, 11.0]), detector.everything) == detector.everything


def test_the_first_language_where_nothing_was_read(detector: LanguageDetector) -> None:
    assert detector.decide(detector.begin()) == 0


def test_an_unordered_set_is_compared_as_well() -> None:
    rankings = Rankings(VOCAB, {name: Ranking(tuple(order), ranked=False) for name, order in ORDERS.items()})
    detector = LanguageDetector(rankings)
    for language in ORDERS:
        evidence = detector.read(detector.begin(), ORDERS[language][-40:])
        assert detector.languages[detector.decide(evidence)] == language
    foreign = detector.read(detector.begin(), list(range(350, 390)))
    assert detector.decide(foreign) == detector.everything


@given(st.lists(st.integers(-1, 9) | st.just(VOCAB), max_size=6))
def test_a_few_tokens_are_read_as_many_are(tokens: list[int]) -> None:
    """Whatever of a template is among them, and what is no token."""
    detector = LanguageDetector(RANKINGS, Template(((1, 2, 1), (2, 1), (4,)), special=(3, 5)))
    before = np.array([3.0, 1.0, 4.0, 1.5])
    assert detector.read_few(before, tokens) == pytest.approx(detector.read(before, tokens))
    assert before.tolist() == [3.0, 1.0, 4.0, 1.5]


def test_what_the_template_says_is_not_read() -> None:
    detector = LanguageDetector(RANKINGS, Template(((3, 4, 5), (6,)), special=(399,)))
    text = write("french", 30)
    assert not {3, 4, 5, 6, 399}.issubset(text)
    text = [token for token in text if token not in (6, 399)]
    plain = detector.read(detector.begin(), text)
    within = [3, 4, 5, *text[:8], 399, *text[8:20], 3, 4, 5, *text[20:], 6]
    assert detector.read(detector.begin(), within) == pytest.approx(plain)
    part = detector.read(detector.begin(), [3, 4, *text])  # an incomplete piece of the template is content
    assert part[0] > plain[0]


UNION = np.arange(340)  # all that the languages rank
TOGETHER = LanguageDetector(RANKINGS, union_tokens=UNION)


@given(st.lists(st.integers(0, VOCAB - 1), max_size=80), st.sampled_from([None, 0, 1, 2]))
def test_together_is_a_part_of_what_no_language_suits(tokens: list[int], current: int | None) -> None:
    """Whether a language suits a text is decided as without it."""
    alone = LanguageDetector(RANKINGS)
    found = TOGETHER.decide(TOGETHER.read(TOGETHER.begin(), tokens), current)
    assert min(found, 3) == alone.decide(alone.read(alone.begin(), tokens), current)


@pytest.mark.parametrize(
    ("outside", "after"),
    [(0.0, (3, 3, 3, 3)), (0.34, (3, 3, 3, 3)), (0.38, (4, 4, 3, 4)), (0.46, (4, 4, 4, 4))],
)
def test_all_languages_are_drafted_from_where_they_hold_most_of_a_text(
    outside: float, after: tuple[int, int, int, int]
) -> None:
    """A text that began so stays for a little more; it may come from nothing, a language, there or all tokens."""
    evidence = np.array([900.0, 900.0, 900.0, outside * 30, TOGETHER.all_tokens_cost * 30])
    assert tuple(TOGETHER.decide(evidence, current) for current in (None, 1, 3, 4)) == after
    evidence[1] = 1.0
    assert [TOGETHER.decide(evidence, current) for current in (None, 1, 3, 4)] == [1] * 4


def test_what_is_in_no_language_is_counted() -> None:
    evidence = TOGETHER.read(TOGETHER.begin(), [5, 399, 350, 120])
    few = TOGETHER.read_few(TOGETHER.begin(), [5, 399, 350, 120])
    assert evidence == pytest.approx(few)
    decay = TOGETHER.decay
    assert evidence[3] == pytest.approx(decay**2 + decay)
    assert evidence[4] / TOGETHER.all_tokens_cost == pytest.approx(1 + decay + decay**2 + decay**3)
