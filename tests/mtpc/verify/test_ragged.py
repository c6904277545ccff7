"""Drafts of many lengths are judged as each is by `verify_rejection` with the same uniforms, and by `verify_greedy`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.verify.greedy import verify_greedy
from mtpc.verify.ragged import verify_greedy_ragged, verify_ragged
from mtpc.verify.rejection import verify_rejection

V, LENGTHS = 23, [3, 0, 1, 5, 2]


def of_rows(flat: Tensor, more: int) -> list[Tensor]:
    """What belongs to each request, so many rows more than it has drafts."""
    return list(flat.split([length + more for length in LENGTHS]))


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_each_is_judged_as_alone(certain: bool, filtered: bool, seed: int) -> None:
    """Also where filters have left few tokens; the drafts are likely enough that some are accepted."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(LENGTHS)
    logits = 3 * torch.randn(count + len(LENGTHS), V, generator=generator)
    if filtered:
        logits[logits < logits.topk(4).values[:, -1:]] = -torch.inf
    target = logits.softmax(-1)
    drafted = torch.cat([rows[:-1] for rows in of_rows(logits, 1)])
    near = (drafted.clamp_min(-9) + torch.randn(count, V, generator=generator)).softmax(-1)
    drafts = torch.multinomial(near, 1, generator=generator)[:, 0]
    accept, last = torch.rand(2, count, generator=generator, dtype=torch.float64)
    last = last[: len(LENGTHS)]
    said = verify_ragged(drafts, LENGTHS, None if certain else near, target, accept, last)
    stated = F.one_hot(drafts, V).float() if certain else near
    for row, (tokens, draft, whole, uniforms) in enumerate(
        zip(of_rows(drafts, 0), of_rows(stated, 0), of_rows(target, 1), of_rows(accept, 0), strict=True)
    ):
        alone = verify_rejection(tokens[None], draft[None], whole[None], uniforms[None], last[None, row])
        assert said[row] == alone.tokens[0, : alone.accepted + 1].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_each_is_judged_greedily_as_alone(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(sum(LENGTHS) + len(LENGTHS), V, generator=generator)
    likeliest = target.argmax(-1)
    right = torch.cat([rows[:-1] for rows in of_rows(likeliest, 1)])
    drafts = torch.where(torch.rand(len(right), generator=generator) < 0.7, right, (right + 1) % V)
    said = verify_greedy_ragged(drafts.tolist(), LENGTHS, likeliest.tolist())
    for tokens, whole, mine in zip(of_rows(drafts, 0), of_rows(target, 1), said, strict=True):
        alone = verify_greedy(tokens[None], whole[None])
        assert mine == alone.tokens[0, : alone.accepted + 1].tolist()


def test_some_of_all_kinds_were_judged() -> None:
    """The tests above would say little if everything were accepted, or nothing."""
    target, drafts = torch.full((6, V), 1 / V), torch.arange(4)
    accept, last = torch.tensor([0.0, 1 / V - 1e-6, 1 / V + 1e-6, 0.0], dtype=torch.float64), torch.zeros(2).double()
    assert verify_ragged(drafts, [2, 2], None, target, accept, last) == [[0, 1, 0], [0]]
    assert verify_greedy_ragged([4, 5, 6, 7], [2, 2], [4, 5, 8, 6, 9, 10]) == [[4, 5, 8], [6, 9]]


def test_what_the_target_never_says_is_not_accepted() -> None:
    target = torch.tensor([[0.5, 0.0, 0.5]]).repeat(2, 1)
    uniforms = torch.zeros(1, dtype=torch.float64)
    for draft in (None, torch.tensor([[0.0, 1.0, 0.0]])):
        assert verify_ragged(torch.tensor([1]), [1], draft, target, uniforms, uniforms) == [[0]]


def test_without_any_draft_the_target_speaks() -> None:
    target, nothing = torch.eye(V)[[3, 5]], torch.zeros(0, dtype=torch.float64)
    assert verify_ragged(nothing.long(), [0, 0], None, target, nothing, torch.zeros(2).double()) == [[3], [5]]
    assert verify_greedy_ragged([], [0, 0], [3, 5]) == [[3], [5]]
