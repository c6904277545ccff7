"""Noise of a decoding step: no two draws share it, neither of two steps nor within one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from mtpc.draw import choose
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.first_draft import draw_first
from sglang_mtpc.step import BatchSteps

ROWS, VOCAB = 64, 32


def batch_of(seeds: torch.Tensor | None = None) -> Any:
    """Sampled requests, in the middle of their texts."""
    info = SimpleNamespace(
        is_all_greedy=False,
        is_any_greedy=False,
        temperatures=torch.ones(ROWS, 1),
        top_ks=torch.full((ROWS,), VOCAB),
        sampling_seed=seeds,
    )
    return SimpleNamespace(sampling_info=info, seq_lens=torch.full((ROWS,), 9), spec_info=SimpleNamespace())


def test_two_steps_have_other_noise_unless_requests_have_seeds() -> None:
    for seeds in (None, torch.arange(ROWS)):
        steps, batch = BatchSteps(random_seed=5), batch_of(seeds)
        first, second = (
            counter_uniforms(step.seeds, step.positions, 1) for step in (steps.begin(batch), steps.begin(batch))
        )
        assert bool((first == second).any()) is (seeds is not None)
        assert len(first.unique()) == ROWS


def test_the_first_token_does_not_share_the_noise_of_the_parallel_part() -> None:
    batch, probs = batch_of(), torch.full((ROWS, VOCAB), 1 / VOCAB)
    step = BatchSteps(random_seed=5).begin(batch)
    draw_first(batch, step, Copied(torch.zeros(ROWS, 1, dtype=torch.int64), torch.zeros(ROWS, 1)), probs)
    parallel = choose(probs, step.temperature, counter_uniforms(step.seeds, step.positions, 1)[:, 0])
    same = (batch.spec_info.topk_index[:, 0] == parallel).double().mean()
    assert same < 0.2  # of independent draws, one in 32
