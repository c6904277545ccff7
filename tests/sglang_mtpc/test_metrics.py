"""What became of drafts is counted for the requests and vocabularies that they were made for, and for nobody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.metrics.tally import Totals
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc import metrics
from sglang_mtpc.metrics import DraftMetrics
from sglang_mtpc.request_vocabularies import SGLangRequestVocabularies

RANKINGS = Rankings(20, {"low": Ranking(tuple(range(10))), "high": Ranking(tuple(range(10, 20)))})


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(prompt: range) -> Any:
    return Request(origin_input_ids=list(prompt), output_ids=[], is_retracted=False, finished=lambda: False)


def batch(*requests: Any, extend: bool = False) -> Any:
    return SimpleNamespace(reqs=list(requests), forward_mode=SimpleNamespace(is_extend=lambda: extend))


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a process of a server that shows metrics."""
    found = SimpleNamespace(tp_rank=0, dp_rank=None)
    monkeypatch.setattr(metrics, "get_observability", lambda: SimpleNamespace(enable_metrics=True))
    monkeypatch.setattr(metrics, "get_serving", lambda: SimpleNamespace(served_model_name="chat"))
    monkeypatch.setattr(metrics, "get_parallel", lambda: found)
    return found


def test_only_the_first_rank_counts(parallel: Any) -> None:
    parallel.tp_rank = 1
    assert DraftMetrics.of_served(None, None, 3) is None


def test_drafts_by_vocabulary(parallel: Any) -> None:
    """Steps overlap: a step is drafted before the verification of the last one is known."""
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings())
    made = DraftMetrics.of_served(None, vocabularies, 3)
    assert made is not None
    assert vocabularies.detector is not None
    chosen = SGLangRequestVocabularies(vocabularies.detector, 4, torch.device("cpu"))
    chosen.tally = made.tally
    low, high = request(range(10)), request(range(10, 20))
    chosen.choose([low, high])
    made.begin_step(batch(low, high, extend=True), chosen.chosen)
    for _ in range(2):
        chosen.choose([high, low])
        made.begin_step(batch(high, low), chosen.chosen)
    made.verified([2, 0])
    low.finished = lambda: True  # found when the verification of the first step is read
    made.verified([1, 3])
    assert made.tally.totals() == Totals({(1, 3, 2): 1, (0, 3, 0): 1, (1, 3, 1): 1}, {(None, 0): 1, (None, 1): 1})


def test_drafts_of_a_step_may_be_shorter_or_none(parallel: Any) -> None:
    made, one = DraftMetrics(None, None, 4), request(range(3))
    for length, accepted in ((2, 1), (0, 0), (4, 4)):
        made.begin_step(batch(one), None)
        made.set_length(length)
        made.verified([accepted])
    assert made.tally.totals().drafts == {(0, 2, 1): 1, (0, 4, 4): 1}


def test_one_vocabulary_is_all_tokens(parallel: Any) -> None:
    made = DraftMetrics(None, None, 2)
    made.begin_step(batch(request(range(3))), None)
    made.verified([2])
    assert made.tally.names == ("all",)
    assert made.tally.totals().drafts == {(0, 2, 2): 1}
