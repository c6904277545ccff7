"""Top-k, top-p and min-p against their definitions, token by token."""

from __future__ import annotations

import pytest
import torch

from mtpc.verify.filters import filtered

ALL = 1 << 30  # what an engine writes for no top-k


def by_definition(probs: list[float], top_k: int, top_p: float, min_p: float, in_turn: bool = False) -> list[float]:
    """One distribution, one token at a time; in turn: one filter after the other, each on what is left."""
    if in_turn:
        after_k = by_definition(probs, top_k, 1.0, 0.0)
        return by_definition(by_definition(after_k, ALL, top_p, 0.0), ALL, 1.0, min_p)
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    before, kept = 0.0, [0.0] * len(probs)
    for rank, token in enumerate(order):
        if rank == 0 or (rank < top_k and before <= top_p and probs[token] >= min_p * probs[order[0]]):
            kept[token] = probs[token]
        before += probs[token]
    return [p / sum(kept) for p in kept]


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("positions", [(), (3,)], ids=["one position", "three positions"])
def test_definition(positions: tuple[int, ...], in_turn: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (3 * torch.randn(6, *positions, 20, generator=generator, dtype=torch.float64)).softmax(-1)
    top_k, top_p = torch.tensor([ALL, 1, 4, ALL, ALL, 7]), torch.tensor([1.0, 1.0, 1.0, 0.7, 1.0, 0.9])
    min_p = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.2, 0.05])
    after_filters = filtered(probs, top_k, top_p, min_p, in_turn).reshape(6, -1, 20)
    for row, parameters in enumerate(
        zip(top_k.tolist(), top_p.double().tolist(), min_p.double().tolist(), strict=True)
    ):
        for before, after in zip(probs[row].reshape(-1, 20), after_filters[row], strict=True):
            assert after.tolist() == pytest.approx(by_definition(before.tolist(), *parameters, in_turn), abs=1e-12)


def test_a_top_k_of_one_is_the_greedy_choice_also_among_equals() -> None:
    probs = torch.tensor([[0.1, 0.3, 0.3, 0.3], [0.25, 0.25, 0.25, 0.25]])
    after_filters = filtered(probs, torch.tensor([1, 1]), torch.ones(2), torch.zeros(2))
    assert torch.equal(after_filters, torch.nn.functional.one_hot(probs.argmax(-1), 4).float())


def test_the_most_probable_token_is_always_kept() -> None:
    after_filters = filtered(torch.tensor([[0.6, 0.4]]), torch.tensor([0]), torch.tensor([0.0]), torch.tensor([1.0]))
    assert after_filters.tolist() == [[1.0, 0.0]]


def test_top_p_after_top_k_keeps_less() -> None:
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)  # 0.3 comes after 0.4 of all, and 0.57 of two
    filters = torch.tensor([2]), torch.tensor([0.5]), torch.tensor([0.0])
    assert filtered(probs, *filters)[0].tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert filtered(probs, *filters, in_turn=True)[0].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_top_p_of_one_leaves_out_nothing(in_turn: bool) -> None:
    """Whatever the rounding of the sums."""
    probs = (8 * torch.randn(200, 60, generator=torch.Generator().manual_seed(0))).double().softmax(-1)
    filters = torch.full((200,), ALL), torch.ones(200), torch.zeros(200)
    assert (filtered(probs, *filters, in_turn) > 0).all()
