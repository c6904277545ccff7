"""Which steps vLLM's rejection sampler need not judge, and which need not be prepared for a drafter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from vllm_mtpc.undrafted import install

COPIES, DOES_NOT = SimpleNamespace(copying=object()), SimpleNamespace(copying=None)
SAID, STATES = torch.tensor([[7], [8]]), torch.tensor([[1.0], [2.0], [0.0]])


def calculated(num_draft_tokens: np.ndarray, cu_num_scheduled_tokens: np.ndarray) -> Any:
    """By vLLM's own function, which needs little of a runner."""
    made = GPUModelRunner.__new__(GPUModelRunner)
    made.device, made.arange_np, made._arange_scratch = torch.device("cpu"), np.arange(64), np.zeros(64, np.int64)
    made.input_ids = SimpleNamespace(gpu=torch.arange(100, 164, dtype=torch.int32))
    return made._calc_spec_decode_metadata(num_draft_tokens, cu_num_scheduled_tokens)


@pytest.fixture
def runner() -> Any:
    class Runner:
        def __init__(self) -> None:
            self.discard_request_mask = SimpleNamespace(np=np.array([False, False, True]))
            self.device, self.calculated = torch.device("cpu"), 0

        def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
            return logits, spec_decode_metadata

        def propose_draft_token_ids(
            self, scheduler_output: Any, sampled_token_ids: Tensor, sampling_metadata: Any, hidden_states: Tensor,
            sample_hidden_states: Any,
        ) -> Any:  # fmt: skip
            return "prepared"

        def _calc_spec_decode_metadata(self, num_draft_tokens: np.ndarray, cu_num_scheduled_tokens: np.ndarray) -> Any:
            self.calculated += 1
            return calculated(num_draft_tokens, cu_num_scheduled_tokens)

    module = SimpleNamespace(GPUModelRunner=Runner)
    install(module)
    return Runner()


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


@pytest.mark.parametrize("drafter", [COPIES, DOES_NOT])
@pytest.mark.parametrize("steps", [[[0, 0], [0, 0]], [[0, 0, 0], [0, 0], [0, 0, 0]], [[0, 0], [2, 1], [0, 0], [0, 3]]])
def test_metadata_are_vllms_and_where_nothing_is_drafted_found_once(
    runner: Any, drafter: Any, steps: list[list[int]]
) -> None:
    runner.drafter = drafter
    for step, drafts in enumerate(steps):
        read = np.array(drafts) + 1
        read[0] += 5 * step  # a prompt
        found, expected = (
            of(np.array(drafts), read.cumsum(dtype=np.int32)) for of in (runner._calc_spec_decode_metadata, calculated)
        )
        assert vars(found).keys() == vars(expected).keys()
        for name, value in vars(expected).items():
            one = vars(found)[name]
            assert torch.equal(one, value) and one.dtype == value.dtype if torch.is_tensor(value) else one == value
    known = {len(drafts) for drafts in steps if not any(drafts)} if drafter is COPIES else steps
    assert runner.calculated == len(known) + (any(map(any, steps)) * 2 if drafter is COPIES else 0)
