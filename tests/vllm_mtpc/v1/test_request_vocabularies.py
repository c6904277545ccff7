"""What is read of requests on the host, and the vocabularies that follow: at once on a CPU, later elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from vllm_mtpc.v1 import request_vocabularies
from vllm_mtpc.v1.request_vocabularies import MAX_PENDING, STEPS_IN_FLIGHT, V1RequestVocabularies

RANKINGS = Rankings(60, {"low": Ranking(tuple(range(30))), "high": Ranking(tuple(range(59, 29, -1)))})
LOW, HIGH = [3, 1, 2, 0, 4, 5], [57, 59, 58, 56, 55, 54]


@pytest.fixture
def chosen() -> V1RequestVocabularies:
    return V1RequestVocabularies(LanguageDetector(RANKINGS, surcharge=1.0), torch.device("cpu"))


def request(prompt: list[int]) -> Any:
    """One of vLLM's."""
    return SimpleNamespace(prompt_token_ids=prompt, output_token_ids=[])


def has_read(chosen: V1RequestVocabularies, request: str, tokens: list[int]) -> bool:
    """Whether these tokens, and no others, are the evidence on a request."""
    reading = chosen.readings[request]
    expected = chosen.detector.read(chosen.detector.begin(), tokens)
    return reading.tokens == len(tokens) and reading.evidence.tolist() == pytest.approx(expected.tolist())


def test_a_batch_in_its_order(chosen: V1RequestVocabularies) -> None:
    chosen.add_request("a", LOW)
    chosen.add_request("b", HIGH)
    assert chosen.choose(["b", "a", "b"]).tolist() == [1, 0, 1]


def test_what_is_sampled_is_read_but_not_what_was_rejected(chosen: V1RequestVocabularies) -> None:
    chosen.add_request("a", LOW)
    chosen.add_request("b", HIGH)
    chosen.add_tokens(["a", "b", "gone"], torch.tensor([[57, 58, -1], [-1, -1, -1], [1, 2, 3]], dtype=torch.int32))
    assert set(chosen.readings) == {"a", "b"}
    assert chosen.choose(["a", "b"]).tolist() == [0, 1]
    assert has_read(chosen, "a", [*LOW, 57, 58])
    assert has_read(chosen, "b", HIGH)
    for _ in range(20):
        chosen.add_tokens(["a"], torch.tensor([[59, 58, 57]]))
    assert chosen.choose(["a", "b"]).tolist() == [1, 1]


def test_what_waits_is_read_at_once_and_does_not_pile_up(chosen: V1RequestVocabularies) -> None:
    chosen.add_request("a", LOW)
    for step in range(MAX_PENDING):
        chosen.add_tokens(["a"], torch.tensor([[step % 60, -1]]))
    assert has_read(chosen, "a", LOW)
    chosen.add_tokens(["a"], torch.tensor([[1, 2]]))
    assert has_read(chosen, "a", [*LOW, *(step % 60 for step in range(MAX_PENDING)), 1, 2])
    assert not chosen.pending


def test_a_name_that_is_used_again_is_another_request(chosen: V1RequestVocabularies) -> None:
    batch = SimpleNamespace(req_ids=["a"], spec_token_ids=[[]])
    for prompt in (LOW, HIGH):
        chosen.record_step(torch.tensor([[5]]), {"a": request(prompt)}, batch)
        chosen.read_arrived()
        assert has_read(chosen, "a", [*prompt, 5])


def test_what_became_of_drafts_counts_for_the_vocabulary_that_they_came_from(chosen: V1RequestVocabularies) -> None:
    chosen.tally, batch = Tally(("low", "high", "all")), SimpleNamespace(req_ids=["a", "b"], spec_token_ids=[[], []])
    requests = {"a": request(LOW), "b": request(HIGH)}
    unread = torch.tensor([False, True])
    chosen.record_and_choose(torch.tensor([[1], [7]]), requests, batch, unread)
    unread[1] = False
    batch.spec_token_ids = [[0, 0], []]
    requests["a"].output_token_ids.append(1)
    for _ in range(9):  # until the first request has changed over
        chosen.record_and_choose(torch.tensor([[57, 58, -1], [7, -1, -1]]), requests, batch, unread)
        requests["a"].output_token_ids += [57, 58]
        requests["b"].output_token_ids.append(7)
    drafts, moves = chosen.tally.totals()
    assert set(drafts) == {(0, 2, 1), (1, 2, 1)}
    assert sum(drafts.values()) == 9
    assert moves == {(None, 0): 1, (None, 1): 1, (0, 1): 1}


def test_steps_that_vllm_leaves_out_are_read_with_the_next_one(chosen: V1RequestVocabularies) -> None:
    """In their order; a draft of vLLM's zeros is not counted."""
    chosen.tally, batch = Tally(("low", "high", "all")), SimpleNamespace(req_ids=["a", "b"], spec_token_ids=[[], []])
    requests = {"a": request(LOW), "b": request(HIGH)}
    chosen.record_and_choose(torch.tensor([[1, -1], [59, -1]]), requests, batch, torch.tensor([False, True]))
    requests["a"].output_token_ids += [1, 2, 3, 4]
    batch.spec_token_ids = [[0], []]
    chosen.record_and_choose(torch.tensor([[5, 6], [58, -1]]), requests, batch, torch.tensor([False, False]))
    assert has_read(chosen, "a", [*LOW, 1, 2, 3, 4, 5, 6])
    assert has_read(chosen, "b", [*HIGH, 58])
    assert not chosen.tally.totals().drafts


def test_a_request_begins_anew_and_is_forgotten(chosen: V1RequestVocabularies) -> None:
    chosen.add_request("a", LOW)
    assert chosen.choose(["a"]).tolist() == [0]
    chosen.add_request("a", HIGH + HIGH)
    assert chosen.choose(["a"]).tolist() == [1]
    chosen.remove_requests(["a", "unknown"])
    assert not chosen.readings


def test_elsewhere_tokens_are_read_when_they_must_have_come(
    monkeypatch: pytest.MonkeyPatch, chosen: V1RequestVocabularies
) -> None:
    waited: list[Any] = []

    class Event:
        """Stands in for the GPU's."""

        def record(self) -> None:
            """The copy is under way."""

        def synchronize(self) -> None:
            waited.append(self)

    monkeypatch.setattr(request_vocabularies.torch.cuda, "Event", Event)
    chosen.asynchronous = True
    chosen.add_request("a", [])
    for step in range(5):
        chosen.add_tokens(["a"], torch.tensor([[step]]))
        chosen.read_arrived()
    assert has_read(chosen, "a", list(range(5 - STEPS_IN_FLIGHT)))
    chosen.remove_requests(["a"])
    chosen.add_request("a", list(range(5)))  # preempted, and back with all its tokens
    for _ in range(STEPS_IN_FLIGHT):
        chosen.add_tokens(["a"], torch.tensor([[-1]]))
        chosen.read_arrived()
    assert has_read(chosen, "a", list(range(5)))
    assert len(waited) == 5
