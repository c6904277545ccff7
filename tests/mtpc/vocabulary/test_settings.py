"""Settings of the draft vocabulary, and their defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtpc.errors import MTPCError
from mtpc.vocabulary import settings
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.settings import CHECKPOINT_SIZE, open_vocabularies, parse_settings
from mtpc.vocabulary.vocabularies import VocabularySettings

RANKINGS = Rankings(10, {"english": Ranking((4, 5, 6, 7)), "french": Ranking((9, 8, 4))}, always=(0,))
WRONG = {
    "size": (5.0, True, "5", "many", 0, -5, 10**30, []),
    "language": (3, "", None, ["english"]),
    "vocabulary": (3, "", {}),
    "sizes": (5,),
}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A file of rankings that is no drafter's own."""
    path = tmp_path / "other.json"
    RANKINGS.save(path, {})
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A drafter checkpoint with a draft vocabulary."""
    RANKINGS.save(tmp_path / "drafter" / "vocabulary.json", {})
    return tmp_path / "drafter"


def test_a_file_is_used_whole_for_each_language(other: Path, tmp_path: Path) -> None:
    assert parse_settings({"vocabulary": str(other)}, tmp_path) == (other, VocabularySettings())


def test_size_and_language(other: Path, tmp_path: Path) -> None:
    values = {"vocabulary": str(other), "size": 6, "language": "french"}
    assert parse_settings(values, tmp_path) == (other, VocabularySettings(6, "french"))


def test_a_drafters_own_file_is_the_default(own: Path, other: Path) -> None:
    assert parse_settings({}, own) == (own / "vocabulary.json", VocabularySettings())
    assert parse_settings({"size": 5}, own) == (own / "vocabulary.json", VocabularySettings(5))
    assert parse_settings({"vocabulary": str(other)}, own) == (other, VocabularySettings())


def test_a_drafters_own_file_is_cut_where_it_has_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the usual size, or to all tokens of a target with fewer; a set without an order is used whole."""
    RANKINGS.save(tmp_path / "vocabulary.json", {})
    for usual, size in ((3, 3), (CHECKPOINT_SIZE, 10)):
        monkeypatch.setattr(settings, "CHECKPOINT_SIZE", usual)
        cut = open_vocabularies({"language": "english"}, tmp_path, 10)
        assert cut is not None
        assert len(cut.ids[0]) == size
    unordered = Ranking((4, 5), ranked=False)
    Rankings(10, {"english": unordered}, ()).save(tmp_path / "vocabulary.json", {})
    whole = open_vocabularies({"language": "english"}, tmp_path, 10)
    assert whole is not None
    assert whole.ids[0].tolist() == [4, 5]


def test_none_drafts_from_the_whole_vocabulary(own: Path, other: Path, tmp_path: Path) -> None:
    assert parse_settings({"language": "none"}, own) is None
    assert parse_settings({"language": "none", "vocabulary": str(other)}, own) is None
    assert parse_settings({}, tmp_path) is None
    assert open_vocabularies({"language": "none"}, own, 10) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(({key: value}, f"the draft vocabulary is wrong at {key!r}") for key in WRONG for value in WRONG[key]),
        ({"language": "english"}, "need a file of rankings: name one, or add"),
        ({"size": 5}, "need a file of rankings: name one, or add"),
    ],
)
def test_wrong_values_are_one_sentence(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(MTPCError) as caught:
        parse_settings(values, tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_opening(other: Path, tmp_path: Path) -> None:
    vocabularies = open_vocabularies({"vocabulary": str(other), "size": 3}, tmp_path, 10)
    assert vocabularies is not None
    assert [ids.tolist() for ids in vocabularies.ids] == [[0, 4, 5], [0, 8, 9], [0, 4, 5, 8, 9], list(range(10))]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"language": "german"}, "unknown language 'german'"),
        ({"size": 11}, "must be 1 to 10 tokens, not 11"),
        ({"vocabulary": "gone.json"}, "gone.json is missing"),
    ],
)
def test_what_the_file_does_not_hold(values: dict[str, Any], message: str, other: Path, tmp_path: Path) -> None:
    with pytest.raises(MTPCError) as caught:
        open_vocabularies({"vocabulary": str(other)} | values, tmp_path, 10)
    assert message in str(caught.value)
    assert ".json" in str(caught.value)
