"""Which drafters are timed while vLLM's CPU worker warms up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.spec_decode.eagle import EagleProposer

from vllm_mtpc.v1 import timing
from vllm_mtpc.v1.base_proposer import BaseProposer
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.text_proposer import TextProposer


@pytest.mark.parametrize(
    ("proposer", "ranks", "is_timed"),
    [(Proposer, 1, True), (TextProposer, 1, True), (EagleProposer, 1, False), (Proposer, 2, False),
     (TextProposer, 2, False)],
)  # fmt: skip
def test_who_is_timed(proposer: type, ranks: int, is_timed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data-parallel ranks step together, but need not time equally many steps."""
    calls: list[str] = []
    if issubclass(proposer, BaseProposer):
        monkeypatch.setattr(proposer, "time_steps", lambda self, runner: calls.append("timed"))

    class Worker:
        parallel_config = SimpleNamespace(data_parallel_size=ranks)
        model_runner = SimpleNamespace(drafter=object.__new__(proposer))

        def compile_or_warm_up_model(self, *given: Any) -> str:
            calls.append("warm")
            return "done"

    module = SimpleNamespace(CPUWorker=Worker)
    timing.install(module)
    assert module.CPUWorker().compile_or_warm_up_model() == "done"
    assert calls == ["timed"] * is_timed + ["warm"]
