"""What is verified for requests that limit their drafts, in batches whose drafts have one length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import MAX_DRAFTS, Draft, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.draft_limits import keep_limits, limit_of
from sglang_mtpc.shape import DraftShape
from tests.sglang_mtpc.stand_ins import PlainRequest, built_of

VOCABULARY, LENGTH = 9, 3


def requests() -> list[Any]:
    """One that has no drafts, one that has one, and others."""
    return [PlainRequest(max_draft_tokens=limit) for limit in (0, 1, "1", 4)] + [PlainRequest()]


def test_a_limit_is_read_once(caplog: pytest.LogCaptureFixture) -> None:
    batch = requests()
    for _ in range(2):
        assert list(map(limit_of, batch)) == [0, 1, MAX_DRAFTS, 4, MAX_DRAFTS]
    assert caplog.messages == [
        "A request's 'max_draft_tokens' is ignored: it must be a whole number, 0 or more, not '1'."
    ]


@pytest.mark.parametrize("stated", [True, False])
def test_a_chain_ends_at_the_limit(stated: bool) -> None:
    """What is verified after it is token 0, which nobody has drawn."""
    tokens, probs, batch = torch.randint(1, VOCABULARY, (5, LENGTH)), torch.rand(5, LENGTH, VOCABULARY), requests()
    built = built_of(Draft(tokens, probs.clone() if stated else None))
    keep_limits(built, batch, True)
    bonus, *found = built.draft_token.view(5, -1).T
    assert (bonus == 7).all()
    for row, kept in enumerate((0, 1, LENGTH, LENGTH, LENGTH)):
        assert [int(place[row]) for place in found] == tokens[row, :kept].tolist() + [0] * (LENGTH - kept)
        if stated:
            certain = one_hot(torch.zeros(1, LENGTH - kept, dtype=torch.int64), VOCABULARY)[0]
            assert torch.equal(built.draft_probs[row], torch.cat([probs[row, :kept], certain]))
    assert stated or built.draft_probs is None


def test_sglangs_own_drafters_keep_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_mtpc.native import EagleDraftWorker, NativeDraftWorker

    tokens = torch.ones(2, LENGTH, dtype=torch.int64)
    monkeypatch.setattr(EagleDraftWorker, "draft", lambda *_: built_of(Draft(tokens, None)))
    worker: Any = NativeDraftWorker.__new__(NativeDraftWorker)
    worker.topk = 1
    built = worker.draft(SimpleNamespace(reqs=requests()[:2], spec_info=None))
    assert built.draft_token.view(2, -1)[:, 1:].tolist() == [[0, 0, 0], [1, 0, 0]]


def test_other_drafts_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """Of a text part, which knows the limits, and trees; a limit of a request with a tree is ignored with a word."""
    tokens = torch.ones(2, LENGTH, dtype=torch.int64)
    for is_chain, probs in ((True, SimpleNamespace()), (False, None), (False, None)):
        built = built_of(Draft(tokens, probs))  # type: ignore[arg-type]
        keep_limits(built, requests()[:2], is_chain)
        assert (built.draft_token.view(2, -1)[:, 1:] == 1).all()
    message = "'max_draft_tokens' of requests is ignored: a draft tree has a fixed number of nodes."
    assert caplog.messages == [message]


@pytest.mark.parametrize(("children", "expected"), [(1, 0), (2, 4)])
def test_a_step_has_no_drafts_if_no_request_may_have_any(children: int, expected: int) -> None:
    cheap = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (40, 1.2)), drafting=((1, 0.01),))
    shape = DraftShape(4, children, 4)
    made = WorkerLengths(CopyTable(), torch.device("cpu"), DraftBudget(4, 4), shape, cheap, False, 1 << 16)
    batch = [PlainRequest(max_draft_tokens=0) for _ in range(2)]
    for request in batch:
        request.origin_input_ids, request.output_ids = [1, 2], [3]  # type: ignore[attr-defined]
    made.begin(batch)
    assert made.choose().length == expected
