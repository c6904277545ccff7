"""Which draft vocabulary a request gets from what the scheduler knows of it, and when it is forgotten."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import LanguageState
from sglang_mtpc.request_vocabularies import RequestTokens, SGLangRequestVocabularies

LOW, HIGH = list(range(10)), list(range(10, 20))
RANKINGS = Rankings(20, {"low": Ranking(tuple(LOW)), "high": Ranking(tuple(HIGH))})
CPU = torch.device("cpu")
DETECTOR = LanguageDetector(RANKINGS, surcharge=1.0)


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(name: str, prompt: list[int], output: list[int]) -> Any:
    return Request(rid=name, origin_input_ids=array("q", prompt), output_ids=array("q", output))


@pytest.mark.parametrize("prompt", [[], [3], [3, 1, 4]])
@pytest.mark.parametrize("output", [[], [1], [1, 5, 9]])
def test_text(prompt: list[int], output: list[int]) -> None:
    text, whole = RequestTokens(array("q", prompt), output), prompt + output
    assert len(text) == len(whole)
    assert list(text) == whole
    assert [text[start:] for start in range(len(whole) + 1)] == [whole[start:] for start in range(len(whole) + 1)]


def test_vocabularies_of_a_batch() -> None:
    vocabularies = SGLangRequestVocabularies(DETECTOR, 4, CPU)
    first, second = request("a", LOW, []), request("b", HIGH, [])
    vocabularies.choose([first, second])
    assert vocabularies.numbers.tolist() == [0, 1, 0, 0]
    memory = vocabularies.numbers.data_ptr()
    first.output_ids = array("q", HIGH * 4)  # it continues in another language
    vocabularies.choose([second, request("c", LOW, []), first])
    assert vocabularies.numbers.tolist() == [1, 0, 1, 0]
    assert vocabularies.numbers.data_ptr() == memory


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[int]] = []
    honest = LanguageState.read

    def reading(one: LanguageState, new: Sequence[int]) -> None:
        read.extend([list(new)] if new else [])
        honest(one, new)

    monkeypatch.setattr(LanguageState, "read", reading)
    vocabularies, one = SGLangRequestVocabularies(DETECTOR, 4, CPU), request("a", LOW, [])
    for output in ([], [1], [1], [1, 2, 3]):
        one.output_ids = output
        vocabularies.choose([one])
    assert read == [LOW, [1], [2, 3]]


def test_a_request_that_is_gone_is_forgotten() -> None:
    vocabularies = SGLangRequestVocabularies(DETECTOR, 4, CPU)
    one, two = request("a", LOW, []), request("b", HIGH, [])
    vocabularies.choose([one, two])
    vocabularies.choose([one, two])
    assert set(vocabularies.readings) == {one, two}
    del one
    assert set(vocabularies.readings) == {two}


def test_a_request_with_the_id_of_one_that_is_still_held() -> None:
    vocabularies, held = SGLangRequestVocabularies(DETECTOR, 4, CPU), request("chat", LOW, [])
    vocabularies.choose([held])
    vocabularies.choose([request("chat", HIGH * 4, [])])
    assert vocabularies.numbers[0] == 1
