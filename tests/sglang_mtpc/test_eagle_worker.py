"""SGLang's worker makes our draft worker itself, and what both of them draft and verify is changed for a while only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

from sglang_mtpc.autoregressive_worker import AutoregressiveWorker
from sglang_mtpc.eagle_worker import EagleWorker, override_sizes


class OwnDraftWorker(EagleDraftWorker):
    """One of ours."""

    requests, metrics = None, None

    def __init__(self, wrong: bool) -> None:
        if wrong:
            raise ValueError("wrong")


class OwnWorker(EagleWorker):
    """Made with it."""

    draft_worker_class = OwnDraftWorker


@pytest.mark.parametrize("wrong", [False, True])
def test_only_our_worker_makes_our_draft_worker(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def sglang_makes_it(self: Any, wrong: bool) -> None:
        self._draft_worker = eagle_worker_v2.EagleDraftWorker(wrong)

    monkeypatch.setattr(EAGLEWorkerV2, "__init__", sglang_makes_it)
    if wrong:
        with pytest.raises(ValueError, match="wrong"):
            OwnWorker(wrong)
    else:
        assert type(OwnWorker(wrong)._draft_worker) is OwnDraftWorker
    assert eagle_worker_v2.EagleDraftWorker is EagleDraftWorker


def test_a_release_that_makes_it_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def sglang_makes_it(self: Any) -> None:
        self._draft_worker = "another one"

    monkeypatch.setattr(EAGLEWorkerV2, "__init__", sglang_makes_it)
    with pytest.raises(AssertionError):
        OwnWorker()


def test_sizes_are_put_back() -> None:
    worker = SimpleNamespace(speculative_num_steps=3, speculative_num_draft_tokens=4)

    def sizes() -> tuple[int, int]:
        return worker.speculative_num_steps, worker.speculative_num_draft_tokens

    def fails() -> None:
        with override_sizes(worker, tokens=9):
            assert sizes() == (1, 9)
            raise ValueError("any")

    with override_sizes(worker, steps=1):
        assert sizes() == (1, 4)
        with pytest.raises(ValueError, match="any"):
            fails()
        assert sizes() == (1, 4)
    assert sizes() == (3, 4)


def test_a_step_verifies_as_many_tokens_as_it_has_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(EAGLEWorkerV2, "verify", lambda self, batch: seen.append(self.speculative_num_draft_tokens))
    made: Any = AutoregressiveWorker.__new__(AutoregressiveWorker)
    made.speculative_num_steps, made.speculative_num_draft_tokens = 3, 4
    made._draft_worker = SimpleNamespace(metrics=None)
    for width in (1, 4, 3):
        made.verify(SimpleNamespace(spec_info=SimpleNamespace(draft_token_num=width)))
    assert (seen, made.speculative_num_draft_tokens) == ([1, 4, 3], 4)
