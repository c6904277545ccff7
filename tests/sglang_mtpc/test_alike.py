"""Whatever drafts on several ranks asks first whether all of them draft with the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.errors import MTPCError
from mtpc.serving import ranks as alike
from sglang_mtpc import native, ranks, served
from sglang_mtpc.autoregressive_worker import AutoregressiveDraftWorker
from sglang_mtpc.native import NativeDraftWorker
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.text_drafts import TextWorker

GROUP = SimpleNamespace(world_size=2, cpu_group="those that speak gloo")


def start_native() -> None:
    """SGLang's part of it is done."""
    worker: Any = NativeDraftWorker.__new__(NativeDraftWorker)
    worker.target_worker = SimpleNamespace(model_config=SimpleNamespace(model_path="target"))
    worker.init_lm_head()


STARTS: dict[str, Callable[[], object]] = {
    "parallel": lambda: ParallelWorker(None, 0, 0, None),
    "text": lambda: TextWorker(None, 0, 0, None),
    "autoregressive": AutoregressiveDraftWorker,
    "native": start_native,
}


@pytest.mark.parametrize("start", STARTS)
def test_they_ask_before_they_do_anything(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SimpleNamespace(speculative_draft_model_path="drafter", speculative_token_map="?language=none")

    def refuse(*asked: Any) -> None:
        assert asked == (GROUP.cpu_group, Path("drafter"), {"language": "none"})
        raise MTPCError("they differ.")

    for module in (ranks, served, native):
        monkeypatch.setattr(module, "get_spec", lambda: spec)
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_group=GROUP))
    monkeypatch.setattr(native.EagleDraftWorker, "init_lm_head", lambda worker: None)
    monkeypatch.setattr(alike, "check_ranks", refuse)
    with pytest.raises(MTPCError, match="they differ"):
        STARTS[start]()
