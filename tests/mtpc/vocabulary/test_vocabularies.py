"""What an engine's adapter takes from the draft vocabularies."""

from __future__ import annotations

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings

RANKINGS = Rankings(10, {"english": Ranking((4, 5, 6, 7)), "french": Ranking((9, 8, 4))}, always=(0,))


def test_every_language_has_a_vocabulary_of_the_size_that_was_asked_for() -> None:
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(size=3))
    assert vocabularies.names == ("english", "french", "together", "all")
    assert [ids.tolist() for ids in vocabularies.ids] == [[0, 4, 5], [0, 8, 9], [0, 4, 5, 8, 9], list(range(10))]
    assert vocabularies.detector is not None
    assert vocabularies.detector.languages == vocabularies.names[:2]
    assert (vocabularies.detector.union, vocabularies.detector.everything) == (2, 3)


def test_tokens_of_vocabularies_are_on_the_cpu_whatever_device_an_engine_loads_models_on() -> None:
    """They are compared there before anything is on the device; vLLM makes the device of a GPU the default."""
    with torch.device("meta"):
        vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(size=3))
        together = vocabularies.union()
    assert together is not None
    assert {ids.device.type for ids in (*vocabularies.ids, *together.ids)} == {"cpu"}


@pytest.mark.parametrize("languages", [("english",), ("english", "french")])
def test_languages_that_are_most_tokens_or_one_are_not_drafted_from_together(languages: tuple[str, ...]) -> None:
    rankings = Rankings(10, {name: RANKINGS.languages[name] for name in languages})
    vocabularies = DraftVocabularies(rankings, VocabularySettings())
    assert vocabularies.names == (*languages, "all")
    assert vocabularies.detector is not None
    assert (vocabularies.detector.union, vocabularies.detector.everything) == (None, len(languages))


@pytest.mark.parametrize("size", [None, 3])
def test_all_languages_together_are_one_vocabulary(size: int | None) -> None:
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(size=size))
    together = vocabularies.union()
    assert together is not None
    assert together.names == ("english + french",)
    assert [ids.tolist() for ids in together.ids] == [[0, 4, 5, 8, 9] if size else [0, 4, 5, 6, 7, 8, 9]]
    assert together.detector is None
    assert vocabularies.detector is not None
    again = together.union()
    assert again is not None
    assert again.ids is together.ids


def test_one_language_needs_no_detector() -> None:
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(language="french"))
    assert [ids.tolist() for ids in vocabularies.ids] == [[0, 4, 8, 9]]
    assert vocabularies.detector is None


@pytest.mark.parametrize(("language", "message"), [("none", "needs no draft"), ("german", "unknown language")])
def test_a_language_that_is_not_there(language: str, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        DraftVocabularies(RANKINGS, VocabularySettings(language=language))
