"""A sample of the head's rows against all of them."""

from __future__ import annotations

import math

import pytest
import torch

from mtpc.lab.training.recipes.fastmtp_loss import step_losses
from mtpc.lab.training.sampled_head import RowSampler
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import SIZE, VOCAB, make_layer, make_target

FREQUENT = VOCAB // 4


def make_sampler() -> RowSampler:
    target = make_target("llama")
    return RowSampler.of(SharedHead.of(target), make_conversations(target, 6), FREQUENT)


def test_the_frequent_tokens_and_the_batchs_own_are_always_there() -> None:
    target = make_target("llama")
    conversations = make_conversations(target, 6)
    sampler = RowSampler.of(SharedHead.of(target), conversations, FREQUENT)
    tokens = [token for conversation in conversations for token in conversation.tokens]
    counts = torch.tensor(tokens).bincount(minlength=VOCAB)
    assert counts[sampler.frequent].min() >= counts.sort(descending=True).values[FREQUENT - 1]
    batch = torch.tensor([[0, VOCAB - 1]])
    for key in range(5):
        head = sampler.sample(batch, key)
        certain = head.ids[head.log_weights == 0].tolist()
        assert set(sampler.frequent.tolist()) | {0, VOCAB - 1} == set(certain)
        drawn = len(head.ids) - len(certain)
        assert drawn == math.ceil(FREQUENT / 4)
        assert float(head.log_weights.max().exp()) == pytest.approx((VOCAB - len(certain)) / drawn)
        assert torch.equal(head.rows_of(head.ids), torch.arange(len(head.ids)))


def test_a_key_draws_the_same_rows_again_and_another_key_others() -> None:
    sampler, batch = make_sampler(), torch.tensor([1])
    assert torch.equal(sampler.sample(batch, 3, 1).ids, sampler.sample(batch, 3, 1).ids)
    assert not torch.equal(sampler.sample(batch, 3, 1).ids, sampler.sample(batch, 3, 2).ids)


def test_the_sum_of_exponentials_is_unbiased() -> None:
    sampler = make_sampler()
    state, batch = torch.randn(SIZE), torch.tensor([1])
    estimates = torch.stack([sampler.sample(batch, key).logits(state).exp().sum() for key in range(2000)])
    error = float(estimates.std()) / math.sqrt(len(estimates))
    expected = float(sampler.head.logits(state).exp().sum())
    assert float(estimates.mean()) == pytest.approx(expected, abs=4 * error)
    unweighted = float(
        torch.stack(
            [sampler.head.restricted(sampler.sample(batch, key).ids).logits(state).exp().sum() for key in range(50)]
        ).mean()
    )
    assert unweighted < expected - 20 * error


@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_a_loss_of_all_rows_is_the_whole_heads(loss: str) -> None:
    target = make_target("llama")
    layer, head = make_layer(target), SharedHead.of(target)
    everything = RowSampler(head, torch.arange(VOCAB)).sample(torch.tensor([0]))
    hidden, tokens = torch.randn(2, 9, SIZE), torch.randint(VOCAB, (2, 9))
    chosen = torch.ones(2, 5, dtype=torch.bool)
    sampled, expected = (step_losses(layer, rows, hidden, tokens, chosen, 3, loss) for rows in (everything, head))
    torch.testing.assert_close(sampled, expected)


@pytest.mark.parametrize("loss", ["ce", "kl"])
def test_its_slope_is_near_that_of_all_rows(loss: str) -> None:
    """Averaged over many samples: the logarithm of an unbiased estimate is biased, by little."""
    layer = make_layer(make_target("llama")).requires_grad_(True)
    torch.manual_seed(1)
    head = SharedHead(torch.randn(400, SIZE), torch.randn(400, SIZE) * 0.3)
    sampler = RowSampler(head, torch.arange(100))
    hidden, tokens = torch.randn(1, 9, SIZE), torch.randint(400, (1, 9))
    chosen = torch.ones(1, 5, dtype=torch.bool)

    def slope(used: SharedHead) -> torch.Tensor:
        losses = step_losses(layer, used, hidden, tokens, chosen, 3, loss)
        return torch.cat([g.flatten() for g in torch.autograd.grad(losses.sum(), list(layer.parameters()))])

    def error(estimate: torch.Tensor) -> float:
        return float((estimate - whole).norm() / whole.norm())

    whole = slope(head)
    heads = [sampler.sample(tokens, key) for key in range(200)]
    weighted, plain = (
        error(torch.stack([slope(rows) for rows in some]).mean(0))
        for some in (heads, [head.restricted(rows.ids) for rows in heads])
    )
    assert weighted < 0.15
    assert plain > 2 * weighted
