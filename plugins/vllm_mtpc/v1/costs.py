"""Measures the costs of decoding steps and of drafting on the V1 runner, by which draft lengths are chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_rank

from mtpc.draft import Mode
from mtpc.draft_length.cost import MEASURED_TOKENS, StepCost, measure_costs
from mtpc.processor import float32_advice
from vllm_mtpc.ranks import seconds_of_first_rank
from vllm_mtpc.v1.timed_sampling import sampling_of

logger = logging.getLogger(f"vllm.{__name__}")


def measured_costs(
    runner: Any,
    requests: int,
    longest: int,
    greedy: Callable[[int], object] | None,
    sampled: Callable[[int], object] | None,
) -> StepCost:
    """Measure the costs of decoding steps, and warn of a dtype in which they are high on this machine.

    Args:
        runner: vLLM's V1 runner.
        requests: Maximum batch size.
        longest: Draft tokens of a request at most.
        greedy: Drafts greedily for a number of requests; None: the drafter has no tokens of its own.
        sampled: The same with sampled drafts.

    Returns:
        The costs, the same on all tensor-parallel ranks.
    """
    if runner.dtype == torch.bfloat16 and get_tensor_model_parallel_rank() == 0 and (advice := float32_advice()):
        logger.warning("%s", advice)

    def step(tokens: int) -> None:
        states, _ = runner._dummy_run(tokens, force_attention=True)
        with runner.maybe_select_dummy_loras(runner.lora_config, np.ones(tokens, np.int32)):  # one row for each token
            runner.model.compute_logits(states[:tokens])

    tokens = min(runner.max_num_tokens, requests * (1 + longest))
    sampling = sampling_of(runner, min(tokens, max(MEASURED_TOKENS)), sampled)
    return measure_costs(step, greedy, tokens, requests, sampling, seconds_of_first_rank)


def draft_repeatedly(model: Any, states: Tensor, count: int, mode: Mode) -> None:
    """Draft tokens from the same states again and again, as an autoregressive part drafts one after another.

    Args:
        model: See `vllm_mtpc.v1.step.V1DraftStep.draft_next`.
        states: States of its layers, [B, d].
        count: Tokens of each request.
        mode: "greedy" or "sampled".
    """
    ones = torch.ones(len(states), device=states.device)
    for _ in range(count):
        if mode == "greedy":
            model.greedy(states, None)
        else:
            model.drawn(states, ones, ones / 2, None)
