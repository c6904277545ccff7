"""Each request's draft vocabulary: what a detector decides that reads its whole text at once, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import numpy as np
import pytest

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import MAX_READ_TOKENS, LanguageState, read_all
from mtpc.vocabulary.template import Template
from tests.oracles.request_languages import RequestLanguages

RANKINGS = Rankings(60, {"low": Ranking(tuple(range(30))), "high": Ranking(tuple(range(59, 29, -1)))})


class Counting(LanguageDetector):
    """Counts the tokens that are read."""

    count = 0

    def read(self, evidence: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        self.count += len(tokens)
        return super().read(evidence, tokens)


def text(languages: list[int], each: int = 30) -> list[int]:
    """Return random tokens of the languages in turn; each: the number per language."""
    generator = np.random.default_rng(len(languages))
    return [token for language in languages for token in (generator.integers(0, 30, each) + 30 * language).tolist()]


def test_requests_are_apart_and_change_over() -> None:
    languages = RequestLanguages(LanguageDetector(RANKINGS, surcharge=1.0))
    first, second = text([0, 1]), text([1, 0])
    for end in range(10, 31, 4):
        assert languages.choose("first", first[:end]) == 0
        assert languages.choose("second", second[:end]) == 1
    assert languages.choose("first", first) == 1
    assert languages.choose("second", second) == 0


def test_of_a_long_prompt_its_end_is_read() -> None:
    """The evidence is that of the whole prompt: what came earlier has decayed to nothing."""
    detector = Counting(RANKINGS, surcharge=1.0)
    prompt = text([0] * 200 + [1])
    whole = detector.read(detector.begin(), prompt)
    detector.count = 0
    alone, batch = LanguageState(detector), [LanguageState(detector), LanguageState(detector)]
    alone.read(prompt)
    assert detector.count == MAX_READ_TOKENS < len(prompt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detector, "read", lambda *given: LanguageDetector.read(detector, *given))
        read_all(batch, [prompt, prompt[:40]])
    for reading in (alone, batch[0]):
        np.testing.assert_allclose(reading.evidence, whole, rtol=1e-12)
        assert reading.tokens == len(prompt)
    np.testing.assert_allclose(batch[1].evidence, LanguageDetector.read(detector, detector.begin(), prompt[:40]))


def test_a_batch_is_read_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = LanguageDetector(RANKINGS, Template(((7, 8), (9,)), (3,)))
    texts = [text([0, 1]), [], [7, 8, 9, 3], [7, 60, -1, 8, 7], text([1], 3)]
    together, apart = [LanguageState(detector) for _ in texts], [LanguageState(detector) for _ in texts]
    read = detector.read
    for part in (slice(0, 20), slice(20, None), slice(0, 0)):
        with monkeypatch.context() as patch:  # all texts at once
            patch.setattr(detector, "read", once := Mock(side_effect=read))
            read_all(together, [each[part] for each in texts])
        assert once.call_count == (part.stop != 0)
        for reading, each in zip(apart, texts, strict=True):
            reading.evidence = detector.read(reading.evidence, each[part])
            reading.tokens += len(each[part])
    for found, expected in zip(together, apart, strict=True):
        assert found.tokens == expected.tokens
        assert found.evidence.tolist() == pytest.approx(expected.evidence.tolist())
    assert together[2].evidence.tolist() == [0.0] * 3


def test_steps_decide_as_a_detector_that_is_read_to_step_by_step() -> None:
    detector, whole = LanguageDetector(RANKINGS, surcharge=1.0), text([1, 0, 1], 12)
    languages = RequestLanguages(detector)
    current = None
    for end in range(1, len(whole) + 1):
        current = detector.decide(detector.read(detector.begin(), whole[:end]), current)
        assert languages.choose("a", whole[:end]) == current


def test_an_empty_prompt_has_a_draft_vocabulary() -> None:
    reading = LanguageState(LanguageDetector(RANKINGS, surcharge=1.0))
    reading.read([])
    assert reading.choose() == 0
