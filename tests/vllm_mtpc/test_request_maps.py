"""What is read of requests on the host, and the maps that follow: tokens come at once on a CPU, later elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from vllm_mtpc import request_maps
from vllm_mtpc.request_maps import UNDER_WAY, RequestMaps

RANKINGS = Rankings(60, {"low": Ranking(tuple(range(30))), "high": Ranking(tuple(range(59, 29, -1)))})
LOW, HIGH = [3, 1, 2, 0, 4, 5], [57, 59, 58, 56, 55, 54]


@pytest.fixture
def maps() -> RequestMaps:
    return RequestMaps(LanguageDetector(RANKINGS), torch.device("cpu"))


def has_read(maps: RequestMaps, request: str, tokens: list[int]) -> bool:
    """Whether these tokens, and no others, are the evidence on a request."""
    reading = maps.readings[request]
    expected = maps.detector.read(maps.detector.begin(), tokens)
    return reading.tokens == len(tokens) and reading.evidence.tolist() == pytest.approx(expected.tolist())


def test_a_batch_in_its_order(maps: RequestMaps) -> None:
    maps.begin("a", LOW)
    maps.begin("b", HIGH)
    assert maps.choose(["b", "a", "b"]).tolist() == [1, 0, 1]


def test_what_is_sampled_is_read_but_not_what_was_rejected(maps: RequestMaps) -> None:
    maps.begin("a", LOW)
    maps.begin("b", HIGH)
    maps.sampled(["a", "b", "gone"], torch.tensor([[57, 58, -1], [-1, -1, -1], [1, 2, 3]], dtype=torch.int32))
    assert set(maps.readings) == {"a", "b"}
    assert has_read(maps, "a", [*LOW, 57, 58])
    assert has_read(maps, "b", HIGH)
    for _ in range(20):
        maps.sampled(["a"], torch.tensor([[59, 58, 57]]))
    assert maps.choose(["a", "b"]).tolist() == [1, 1]


def test_a_request_begins_anew_and_is_forgotten(maps: RequestMaps) -> None:
    maps.begin("a", LOW)
    assert maps.choose(["a"]).tolist() == [0]
    maps.begin("a", HIGH + HIGH)
    assert maps.choose(["a"]).tolist() == [1]
    maps.forget(["a", "unknown"])
    assert not maps.readings


def test_elsewhere_tokens_are_read_when_they_must_have_come(monkeypatch: pytest.MonkeyPatch, maps: RequestMaps) -> None:
    waited: list[Any] = []

    class Event:
        """Stands in for the GPU's."""

        def record(self) -> None:
            """The copy is under way."""

        def synchronize(self) -> None:
            waited.append(self)

    monkeypatch.setattr(request_maps.torch.cuda, "Event", Event)
    maps.asynchronous = True
    maps.begin("a", [])
    for step in range(5):
        maps.sampled(["a"], torch.tensor([[step]]))
    assert has_read(maps, "a", list(range(5 - UNDER_WAY)))
    maps.forget(["a"])
    maps.begin("a", list(range(5)))  # preempted, and back with all that it has said
    for _ in range(UNDER_WAY):
        maps.sampled(["a"], torch.tensor([[-1]]))
    assert has_read(maps, "a", list(range(5)))
    assert len(waited) == 5
