"""What is chosen for real texts, by the draft vocabularies that ship; the ids are those of SmolLM2's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.requests import LanguageState
from mtpc.vocabulary.settings import CHECKPOINT_FILE, open_vocabularies
from mtpc.vocabulary.template import Template
from mtpc.vocabulary.vocabularies import DraftVocabularies


def ids(text: str) -> list[int]:
    """Of numbers with spaces."""
    return list(map(int, text.split()))


FOLDER = Path(__file__).parents[3] / "weights" / "smollm2-fastmtp"
OPENING = ids("1 9690 198 2683 359 253 5356 5646 11173 3365 3511 308 34519 28 7018 411 407 19712 8182 2 198 1 4093 198")
ASKING = ids("2 198 1 520 9531 198")
# Written for this.
TEXTS = {
    "spanish": ids(
        """
        47416 51 7342 15771 273 2055 95 253 1702 594 253 16800 337 549 90 270 47 19579 358 85 549 784 101
        381 95 253 13876 25987 28 11488 291 1102 20669 2756 86 46277 16938 14648 2902 3302 81 329 708 9938
        17842 549 613 32243 708 9020 15225 21965 81 30826 14277 30 17672 14648 1102 287 18155 1264 922 24055
        """
    ),
    "english": ids(
        """
        2020 416 339 835 288 2801 1365 47 339 2007 685 288 4463 418 25232 28 1492 418 957 5460 327 2745 354
        5353 284 965 8423 22576 1793 827 30 3897 260 1194 339 744 12364 284 5968 253 2341 282 6728 30 8765
        1928 549 253 1443 2232 3372 338 536 441 1708 3534 284 338 339 416 1120 351 34451 30
        """
    ),
    "code": ids(
        """
        1604 4138 79 18938 24 6347 28 8068 727 472 1620 504 1441 282 971 5700 282 588 800 2396 7996 472 585
        8068 2067 216 33 42 448 3467 11049 1470 6930 1251 325 2731 1715 472 2719 446 2028 24 6347 5240 6930
        2255 472 1530 446 933 9712 2272 8068 77 472 327 2049 28 1048 281 13805 24 6347 28
        """
    ),
    "italian": ids(
        """
        39393 252 723 95 567 2618 1708 81 599 85 263 3662 89 263 317 287 272 10047 5401 861 3955 1562 28
        12102 2618 287 1203 4127 265 23 11180 21940 613 11222 20434 95 28 1089 26820 275 46446 281 7314 676
        425 328 1437 285 89 30 1268 386 1747 676 6269 684 89 15501 3335 360 21988 98 3335 28
        """
    ),
    "german": ids(
        """
        42703 360 676 5899 7170 43266 5549 137 593 4017 3052 1131 267 315 1018 444 1303 106 813 16062 310
        266 456 9573 28 392 301 549 88 257 257 2056 88 16863 3970 106 82 1727 264 47316 3561 336 264 1583
        258 94 264 9968 813 30 1268 269 6925 283 7170 859 264 5437 15260 35159 846 1299 1362 25861
        """
    ),
    "chinese": ids(
        """
        178 113 219 180 237 219 47093 16357 133 26602 239 180 237 219 12831 27830 23022 250 28660 18310 221
        11567 44652 249 47222 27219 230 29157 123 26986 233 11567 16821 130 43222 219 180 38466 14483 247
        16357 230 43340 46940 16357 235 42019 122 23213 118 19076 32632 41479 18614 244 18265 30679 234
        17815 243 27219 230 12831 48287
        """
    ),
}
# Without a draft vocabulary: the languages that there are hold most of two of them.
NONE = {"italian": "together", "german": "together", "chinese": "all"}


@pytest.fixture(scope="module")
def vocabularies() -> DraftVocabularies:
    """Those that ship, without a tokenizer."""
    opened = open_vocabularies({}, FOLDER, 49152)
    assert opened is not None
    return opened


def chosen(vocabularies: DraftVocabularies, *texts: list[int]) -> Iterator[str]:
    """After the first text, and after each token of the others."""
    detector = vocabularies.detector
    assert detector is not None
    reading = LanguageState(detector)
    for tokens in (texts[0], *([token] for text in texts[1:] for token in text)):
        reading.read(tokens)
        yield vocabularies.names[reading.choose()]


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_has_its_draft_vocabulary_or_all_tokens(vocabularies: DraftVocabularies, language: str) -> None:
    assert list(chosen(vocabularies, TEXTS[language])) == [NONE.get(language, language)]


@pytest.mark.parametrize("language", ["spanish", "english", "code"])
def test_eight_tokens_are_enough_also_in_the_chat_template(vocabularies: DraftVocabularies, language: str) -> None:
    text = TEXTS[language][:8]
    assert list(chosen(vocabularies, text)) == [language]
    assert vocabularies.detector is not None
    template = Template((tuple(OPENING), tuple(ASKING)), special=(0, 1, 2))
    union = vocabularies.ids[-2].numpy()
    detector = LanguageDetector(read_rankings(FOLDER / CHECKPOINT_FILE, 49152), template, union_tokens=union)
    assert detector.read(detector.begin(), [*OPENING, *text, *ASKING]) == pytest.approx(
        vocabularies.detector.read(vocabularies.detector.begin(), text)
    )


@pytest.mark.parametrize(("first", "second"), [("english", "spanish"), ("english", "german"), ("chinese", "code")])
def test_a_text_that_goes_on_in_another_language(vocabularies: DraftVocabularies, first: str, second: str) -> None:
    steps = list(chosen(vocabularies, TEXTS[first], TEXTS[second] * 2))
    right = NONE.get(second, second)
    assert steps[0] == NONE.get(first, first)
    assert steps.index(right) <= 64
    assert set(steps[64:]) == {right}


@pytest.mark.parametrize("language", TEXTS)
def test_a_choice_within_one_language_is_kept(vocabularies: DraftVocabularies, language: str) -> None:
    steps = list(chosen(vocabularies, TEXTS[language][:32], TEXTS[language][32:]))
    assert sum(one != other for one, other in pairwise(steps)) <= 1
