"""Which steps vLLM's rejection sampler need not judge, and which need not be prepared for a drafter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vllm_mtpc.undrafted import install

COPIES, DOES_NOT = SimpleNamespace(copying=object()), SimpleNamespace(copying=None)
SAID, STATES = torch.tensor([[7], [8]]), torch.tensor([[1.0], [2.0], [0.0]])


@pytest.fixture
def runner() -> Any:
    class GPUModelRunner:
        def __init__(self) -> None:
            self.discard_request_mask = SimpleNamespace(np=np.array([False, False, True]))

        def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
            return logits, spec_decode_metadata

        def propose_draft_token_ids(
            self, scheduler_output: Any, sampled_token_ids: Tensor, sampling_metadata: Any, hidden_states: Tensor,
            sample_hidden_states: Any,
        ) -> Any:  # fmt: skip
            return "prepared"

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


def proposed(runner: Any, said: Tensor = SAID, scheduled: int = 2) -> Any:
    """In a step that has read so many tokens."""
    scheduler = SimpleNamespace(total_num_scheduled_tokens=scheduled, num_spec_tokens_to_schedule=5)
    return runner.propose_draft_token_ids(scheduler, said, None, STATES, 0)


@pytest.mark.parametrize("drafts", [[[], []], [[1, 2], []], None])
def test_a_drafter_that_drafts_at_once_is_not_prepared_for(runner: Any, drafts: Any) -> None:
    asked: list[Any] = []

    def answer(*given: Any) -> Any:
        asked.append(given)
        return drafts

    runner.drafter = SimpleNamespace(copying=object(), at_once=answer)
    assert proposed(runner) == ("prepared" if drafts is None else drafts)
    ((who, most, said, states),) = asked
    assert (who, most) == (runner, 5)
    assert torch.equal(said, SAID)
    assert torch.equal(states, STATES[:2])


def test_only_where_each_request_has_read_one_token_and_said_one(runner: Any) -> None:
    """No prompt is read, nor was anything drafted."""
    runner.drafter = SimpleNamespace(copying=object())  # not asked
    assert proposed(runner, scheduled=3) == "prepared"
    assert proposed(runner, said=torch.tensor([[7, -1], [8, 9]])) == "prepared"
    runner.discard_request_mask.np[1] = True
    assert proposed(runner) == "prepared"
    runner.drafter = DOES_NOT
    runner.discard_request_mask.np[1] = False
    assert proposed(runner) == "prepared"
