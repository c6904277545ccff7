"""Which steps vLLM's rejection sampler need not judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_mtpc.undrafted import install

COPIES, DOES_NOT = SimpleNamespace(copying=object()), SimpleNamespace(copying=None)


@pytest.fixture
def runner() -> Any:
    class GPUModelRunner:
        def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
            return logits, spec_decode_metadata

    module = SimpleNamespace(GPUModelRunner=GPUModelRunner)
    install(module)
    return GPUModelRunner()


@pytest.mark.parametrize(
    ("drafter", "drafts", "judged"),
    [(COPIES, [0, 0], False), (COPIES, [0, 2], True), (DOES_NOT, [0, 0], True), (SimpleNamespace(), [0], True)],
)
def test_only_steps_without_a_draft_of_what_copies(runner: Any, drafter: Any, drafts: list[int], judged: bool) -> None:
    runner.drafter, metadata = drafter, SimpleNamespace(num_draft_tokens=drafts)
    assert runner._sample("logits", metadata) == ("logits", metadata if judged else None)


def test_a_server_without_a_drafter_is_left_alone(runner: Any) -> None:
    assert runner._sample("logits", None) == ("logits", None)
