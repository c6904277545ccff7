"""Drafts of many lengths are judged as each is by `verify_rejection` with the same uniforms."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mtpc.verify.ragged import verify_ragged
from mtpc.verify.rejection import verify_rejection

V, LENGTHS = 23, [3, 0, 1, 5, 2]


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_each_is_judged_as_alone(certain: bool, filtered: bool, seed: int) -> None:
    """Also where filters have left few tokens; the drafts are likely enough that some are accepted."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(LENGTHS)
    logits = 3 * torch.randn(count, V, generator=generator)
    if filtered:
        logits[logits < logits.topk(4).values[:, -1:]] = -torch.inf
    near = (logits.clamp_min(-9) + torch.randn(count, V, generator=generator)).softmax(-1)
    drafts = torch.multinomial(near, 1, generator=generator)[:, 0]
    accept, last = torch.rand(2, count, generator=generator, dtype=torch.float64)
    last = last[: len(LENGTHS)]
    accepted, after = verify_ragged(drafts, LENGTHS, None if certain else near, logits, accept, last)
    start = 0
    for row, length in enumerate(LENGTHS):
        mine = slice(start, start := start + length)
        draft = F.one_hot(drafts[mine], V) if certain else near[mine]
        target = torch.cat([logits[mine].softmax(-1), torch.full((1, V), 1 / V)])
        alone = verify_rejection(drafts[None, mine], draft[None], target[None], accept[None, mine], last[None, row])
        assert accepted[row] == alone.accepted.item()
        assert after[row] == (None if accepted[row] == length else alone.tokens[0, accepted[row]].item())


def test_some_of_all_kinds_were_judged() -> None:
    """The test above would say little if everything were accepted, or nothing."""
    logits, drafts = torch.zeros(4, V), torch.arange(4)
    accept, last = torch.tensor([0.0, 1 / V - 1e-6, 1 / V + 1e-6, 0.0], dtype=torch.float64), torch.zeros(2).double()
    assert verify_ragged(drafts, [2, 2], None, logits, accept, last) == ([2, 0], [None, 0])


def test_what_the_target_never_says_is_not_accepted() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0]])
    uniforms = torch.zeros(1, dtype=torch.float64)
    for draft in (None, torch.tensor([[0.0, 1.0, 0.0]])):
        assert verify_ragged(torch.tensor([1]), [1], draft, logits, uniforms, uniforms) == ([0], [0])
