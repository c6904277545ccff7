"""The rules at given uniforms: thresholds, the ends of [0, 1), padding, greedy requests, low precision."""

from __future__ import annotations

import pytest
import torch

from mtpc.draw import draw
from mtpc.verify import PADDING, verify_greedy, verify_rejection
from mtpc.verify.rejection import acceptance_probabilities
from tests.mtpc.verify.rules import RULES
from tests.oracles.block_verification import block_acceptance, block_weights, verify_block
from tests.oracles.processes import random_process, sample_paths

LARGEST = 1.0 - 2.0**-24
VERIFY = {"rejection": verify_rejection, "block": verify_block}


def test_greedy_match_keeps_the_matching_drafts_and_adds_the_targets_choice() -> None:
    best = torch.tensor([[1, 2, 0, 3], [1, 2, 0, 3], [1, 2, 0, 3]])
    drafts = torch.tensor([[1, 2, 0], [1, 3, 0], [0, 2, 0]])
    verdict = verify_greedy(drafts, torch.nn.functional.one_hot(best, 4).float())
    assert verdict.accepted.tolist() == [3, 1, 0]
    assert verdict.tokens.tolist() == [[1, 2, 0, 3], [1, 2, PADDING, PADDING], [1, PADDING, PADDING, PADDING]]


@pytest.mark.parametrize("rule", VERIFY)
def test_one_hot_target_and_draft_reduce_to_the_greedy_match(rule: str) -> None:
    """Temperature 0 in a mixed batch, for uniforms anywhere."""
    generator = torch.Generator().manual_seed(0)
    drafts = torch.randint(3, (200, 4), generator=generator)
    best = torch.where(torch.rand(200, 5, generator=generator) < 0.3, 0, torch.nn.functional.pad(drafts, (0, 1)))
    target = torch.nn.functional.one_hot(best, 3).float()
    draft = torch.nn.functional.one_hot(drafts, 3).float()
    expected = verify_greedy(drafts, target)
    for uniforms in (torch.zeros(200, 5), torch.full((200, 5), LARGEST), torch.rand(200, 5, generator=generator)):
        verdict = VERIFY[rule](drafts, draft, target, uniforms[:, :4], uniforms[:, 4])
        assert torch.equal(verdict.tokens, expected.tokens)
        assert torch.equal(verdict.accepted, expected.accepted)


@pytest.mark.parametrize("uniform", [0.0, 0.5, LARGEST])
@pytest.mark.parametrize("rule", VERIFY)
def test_a_draft_of_target_probability_zero_is_never_accepted(rule: str, uniform: float) -> None:
    target = torch.tensor([[[0.0, 0.4, 0.6], [0.5, 0.5, 0.0]]])
    for q in (0.9, 1e-30, 0.0):
        draft = torch.tensor([[[q, 1.0 - q, 0.0]]])
        verdict = VERIFY[rule](torch.tensor([[0]]), draft, target, torch.tensor([[uniform]]), torch.tensor([uniform]))
        assert verdict.accepted.item() == 0
        assert verdict.tokens[0, 0].item() in (1, 2)


@pytest.mark.parametrize("rule", VERIFY)
def test_a_perfect_draft_is_always_accepted(rule: str) -> None:
    target = torch.rand(64, 4, 100, generator=torch.Generator().manual_seed(0)).softmax(-1)
    drafts = torch.randint(100, (64, 3), generator=torch.Generator().manual_seed(1))
    verdict = VERIFY[rule](drafts, target[:, :3], target, torch.full((64, 3), LARGEST), torch.zeros(64))
    assert (verdict.accepted == 3).all()
    assert torch.equal(verdict.tokens[:, :3], drafts)


@pytest.mark.parametrize("rule", VERIFY)
def test_drafts_are_accepted_exactly_below_their_probability(rule: str) -> None:
    """The closed forms that the enumeration integrates are the thresholds that the rule applies."""
    target, draft = random_process(3, 4, 0), random_process(3, 3, 1)
    paths = sample_paths(draft, 30, 3, seed=0)
    p, q = target.along(paths, 4), draft.along(paths, 3)
    if rule == "rejection":
        threshold = acceptance_probabilities(paths, q, p)
    else:
        threshold = block_acceptance(block_weights(paths, q, p), q, p)
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        wanted = torch.rand(30, 3, generator=generator) < 0.5
        uniforms = torch.where(wanted, threshold - 1e-9, threshold + 1e-9)
        uniforms = torch.where(threshold == 1.0, torch.full_like(threshold, 0.5), uniforms)
        passed = (wanted | (threshold == 1.0)).tolist()
        got = VERIFY[rule](paths, q, p, uniforms, torch.zeros(30)).accepted.tolist()
        for row, count in zip(passed, got, strict=True):
            if rule == "rejection":
                assert count == (row.index(False) if False in row else 3)
            else:
                assert count == max((i + 1 for i in range(3) if row[i]), default=0)


@pytest.mark.parametrize("rule", RULES)
def test_low_precision_probabilities(rule: str) -> None:
    """Emitted tokens are padded and within the vocabulary, also with float32 probabilities of a sharp target."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.randn(256, 5, 300, generator=generator) * 30).softmax(-1)
    draft = (torch.randn(256, 4, 300, generator=generator) * 30).softmax(-1)
    drafts = draw(draft.flatten(0, 1), torch.rand(1024, generator=generator)).view(256, 4)
    uniforms = torch.rand(256, 5, generator=generator)
    verdict = VERIFY[rule](drafts, draft, target, uniforms[:, :4], uniforms[:, 4])
    position = torch.arange(5)
    assert ((verdict.tokens == PADDING) == (position > verdict.accepted[:, None])).all()
    assert (verdict.tokens < 300).all()


@pytest.mark.parametrize("uniform", [0.0, 0.25, 0.999, LARGEST, 1.0 - 2.0**-53])
def test_draw_never_returns_weight_zero(uniform: float) -> None:
    weights = torch.rand(500, 40, generator=torch.Generator().manual_seed(0))
    weights[weights < 0.7] = 0.0
    weights[:, 20] = 0.1
    drawn = draw(weights, torch.full((500,), uniform, dtype=torch.float64))
    assert (weights.gather(1, drawn[:, None]) > 0).all()


def test_draw_inverts_the_cumulative_distribution() -> None:
    uniforms = torch.tensor([0.0, 0.124, 0.126, 0.374, 0.376, 0.99])
    assert draw(torch.tensor([[1.0, 2.0, 0.0, 5.0]]).expand(6, 4), uniforms).tolist() == [0, 0, 1, 1, 3, 3]
