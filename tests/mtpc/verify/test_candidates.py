"""Verification among a top-k's tokens against the rules over the whole vocabulary, with many equal tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.verify import verify_rejection, verify_tree
from mtpc.verify.candidates import candidates, top_tokens, verify_rejection_candidates, verify_tree_candidates
from mtpc.verify.filters import filtered, filtered_by_min_p

ROWS, PLACES, V = 300, 4, 40


def made(kind: str) -> Tensor:
    """Logits [ROWS, PLACES, V]: all different, many equal, or most refused by a grammar."""
    logits = 2 * torch.randn(ROWS, PLACES, V, generator=torch.Generator().manual_seed(0))
    if kind == "equal":
        logits = logits.round()
    elif kind == "refused":
        logits = logits.round().masked_fill(torch.arange(V) % 7 > 0, -torch.inf)
    return logits


def parameters(most: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return temperatures, top-k up to `most`, top-p and min-p, [ROWS] each, including their extremes."""
    generator = torch.Generator().manual_seed(1)
    top_p = torch.rand(ROWS, generator=generator)
    min_p = torch.rand(ROWS, generator=generator).square()
    row = torch.arange(ROWS)
    top_p[row % 4 == 0], top_p[row % 9 == 1] = 1.0, 0.0
    min_p[row % 3 == 0], min_p[row % 11 == 1] = 0.0, 1.0
    temperature = 0.3 + torch.rand(ROWS, generator=generator)
    return temperature, torch.randint(1, most + 1, (ROWS,), generator=generator), top_p, min_p


def both(kind: str, most: int, in_turn: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The candidates, and the reference: the whole distribution, sorted."""
    logits, (temperature, *filters) = made(kind), parameters(most)
    whole = filtered((logits.double() / temperature[:, None, None]).softmax(-1), *filters, in_turn)
    return candidates(logits, temperature, *filters, most, in_turn), whole


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("most", [1, 2, 13, V, 1 << 30])
@pytest.mark.parametrize("kind", ["different", "equal", "refused"])
def test_candidates_are_the_filtered_distribution(kind: str, most: int, in_turn: bool) -> None:
    (tokens, probs), whole = both(kind, most, in_turn)
    assert tokens.shape == (ROWS, PLACES, min(most, V))
    assert (tokens.diff(dim=-1) > 0).all()
    spread = torch.zeros_like(whole).scatter(-1, tokens, probs)
    assert torch.equal(spread > 0, whole > 0)
    torch.testing.assert_close(spread, whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize("count", [1, 3, V])
@pytest.mark.parametrize("kind", ["different", "equal", "refused"])
def test_equal_tokens_rank_by_their_number(kind: str, count: int) -> None:
    logits = made(kind)
    ranked = logits.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    assert torch.equal(top_tokens(logits, count), ranked)


def test_logits_that_are_no_numbers_lead_to_tokens_all_the_same() -> None:
    assert (top_tokens(torch.full((2, V), torch.nan), 3) < V).all()


@pytest.mark.parametrize("kind", ["different", "equal", "refused"])
def test_verdicts_are_those_over_all_tokens(kind: str) -> None:
    found, whole = both(kind, 13, False)
    generator = torch.Generator().manual_seed(2)
    draft = torch.randn(ROWS, PLACES - 1, V, generator=generator).softmax(-1)
    tokens = torch.where(
        torch.rand(ROWS, PLACES - 1, generator=generator) < 0.8,
        whole[:, :-1].argmax(-1),
        torch.randint(V, (ROWS, PLACES - 1), generator=generator),
    )
    uniforms = torch.rand(ROWS, PLACES, dtype=torch.float64, generator=generator)
    noise = uniforms[:, :-1], uniforms[:, -1]
    among = verify_rejection_candidates(tokens, draft, found, *noise)
    over = verify_rejection(tokens, draft, whole, *noise)
    assert set(over.accepted.tolist()) == set(range(PLACES))
    assert torch.equal(among.accepted, over.accepted)
    assert torch.equal(among.tokens, over.tokens)
    parents = torch.tensor([-1, -1, 0]).expand(ROWS, -1)
    for one, other in zip(
        verify_tree_candidates(tokens, parents, found, uniforms),
        verify_tree(tokens, parents, whole, uniforms),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_a_min_p_alone_needs_no_order() -> None:
    probs, min_p = made("equal").double().softmax(-1), parameters(1)[3]
    everything = filtered(probs, torch.full((ROWS,), V), torch.ones(ROWS), min_p)
    torch.testing.assert_close(filtered_by_min_p(probs, min_p), everything, atol=1e-15, rtol=0)
