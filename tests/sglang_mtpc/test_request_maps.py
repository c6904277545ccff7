"""Which map a request gets from what the scheduler knows of it, and when it is forgotten."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import RequestLanguages
from sglang_mtpc.request_maps import RequestMaps, Text

LOW, HIGH = list(range(10)), list(range(10, 20))
DETECTOR = LanguageDetector(Rankings(20, {"low": Ranking(tuple(LOW)), "high": Ranking(tuple(HIGH))}))


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``."""

    __hash__ = object.__hash__


def request(name: str, prompt: list[int], output: list[int]) -> Any:
    return Request(rid=name, origin_input_ids=array("q", prompt), output_ids=array("q", output))


@pytest.mark.parametrize("prompt", [[], [3], [3, 1, 4]])
@pytest.mark.parametrize("output", [[], [1], [1, 5, 9]])
def test_text(prompt: list[int], output: list[int]) -> None:
    text, whole = Text(array("q", prompt), output), prompt + output
    assert len(text) == len(whole)
    assert list(text) == whole
    assert [text[place:] for place in range(len(whole) + 1)] == [whole[place:] for place in range(len(whole) + 1)]


def test_maps_of_a_batch() -> None:
    maps = RequestMaps(DETECTOR, 4, torch.device("cpu"))
    first, second = request("a", LOW, []), request("b", HIGH, [])
    maps.choose([first, second])
    assert maps.maps.tolist() == [0, 1, 0, 0]
    memory = maps.maps.data_ptr()
    first.output_ids = array("q", HIGH * 4)  # it goes on in another language
    maps.choose([second, request("c", LOW, []), first])
    assert maps.maps.tolist() == [1, 0, 1, 0]
    assert maps.maps.data_ptr() == memory


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[int]] = []
    honest = DETECTOR.read
    monkeypatch.setattr(DETECTOR, "read", lambda evidence, new: (read.append(list(new)), honest(evidence, new))[1])
    maps, one = RequestMaps(DETECTOR, 4, torch.device("cpu")), request("a", LOW, [])
    for output in ([], [1], [1], [1, 2, 3]):
        one.output_ids = output
        maps.choose([one])
    assert read == [LOW, [1], [2, 3]]


def test_a_request_that_is_gone_is_forgotten() -> None:
    maps, one, two = RequestMaps(DETECTOR, 4, torch.device("cpu")), request("a", LOW, []), request("b", HIGH, [])
    maps.choose([one, two])
    maps.choose([one, two])
    assert isinstance(maps.languages, RequestLanguages)
    assert set(maps.languages.readings) == {"a", "b"}
    del one
    assert set(maps.languages.readings) == {"b"}
