"""vLLM's rejection sampler on a CPU, where it is ours: the distribution, and what is left to vLLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.statistics.chi_square import REJECT_BELOW, chi_square_p_value
from vllm_mtpc.cpu_rejection import _drawing_once

LENGTHS, DRAFTS = [2, 0, 1], torch.tensor([3, 1, 2], dtype=torch.int32)
METADATA = {"all_random": True, "generators": {}}
OTHERS = {"use_fp64_gumbel": False, "fly_window_size": None}  # arguments of vLLM's


def theirs(*arguments: Any, **named: Any) -> Any:
    """vLLM's own."""
    return "theirs", arguments, named


def sampled(
    logits: torch.Tensor,
    probs: torch.Tensor | None,
    drafts: torch.Tensor = DRAFTS,
    others: Mapping[str, Any] = OTHERS,
    **metadata: Any,
) -> Any:
    counts = torch.tensor(LENGTHS).cumsum(0)
    bonus = torch.tensor([[7], [8], [9]])
    how = SimpleNamespace(**METADATA | metadata)
    return _drawing_once(theirs)(drafts, LENGTHS, 2, counts, probs, logits, bonus, how, **others)


def test_accepted_tokens_then_one_more_then_nothing() -> None:
    logits = torch.full((3, 10), -30.0)
    logits[0, 3] = logits[1, 5] = logits[2, 2] = 30.0
    found = sampled(logits, None)
    assert found.dtype == torch.int32
    assert found.tolist() == [[3, 5, -1], [8, -1, -1], [2, 9, -1]]


def test_the_rest_is_left_to_vllm() -> None:
    logits = torch.zeros(3, 10)
    for metadata in ({"all_random": False}, {"generators": {1: torch.Generator()}}):
        name, arguments, named = sampled(logits, None, **metadata)
        assert (name, named) == ("theirs", {"synthetic_mode": False, **OTHERS})
        assert arguments[0] is DRAFTS
        assert arguments[5] is logits
    assert sampled(logits, None, torch.tensor([3, -1, 2]))[0] == "theirs"
    for others in ({"synthetic_mode": True}, {"fly_window_size": 2}):
        assert sampled(logits, None, others=others)[0] == "theirs"


@pytest.mark.parametrize("wrong", [False, True])
def test_first_tokens_have_the_targets_distribution(wrong: bool) -> None:
    """Of 20,000 steps; a drafter that states what it did not draw from is found out."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(0)
    target, stated = torch.randn(2, 1, 6, generator=generator).softmax(-1)
    drawn = stated.flip(-1) if wrong else stated
    counts: Counter[int] = Counter()
    sample, how = _drawing_once(theirs), SimpleNamespace(**METADATA)
    drafts = torch.multinomial(drawn[0], 20_000, replacement=True, generator=generator)
    for draft in drafts.split(1):
        said = sample(draft, [1], 1, torch.tensor([1]), stated, target.log(), torch.tensor([[0]]), how)
        counts[int(said[0, 0])] += 1
    assert (chi_square_p_value(counts, dict(enumerate(target[0].tolist()))) < REJECT_BELOW) == wrong
