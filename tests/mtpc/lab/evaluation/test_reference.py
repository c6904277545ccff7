"""Drafting with a cache against drafting without one, and the probabilities that drafts travel with."""

from __future__ import annotations

import pytest
import torch

from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.target_head.shared import SharedHead
from tests.oracles.draft_layers import greedy
from tests.support.tiny_models import KINDS, SIZE, VOCAB, draft_layers_oracle, make_fastmtp, make_target

DRAFTS = 4
PARTS = (6, 1, 3)  # positions that the target verifies in turn


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_drafts_are_those_of_the_loop_without_a_cache(kind: str) -> None:
    target = make_target(kind)
    drafter, head = make_fastmtp(target), SharedHead.of(target)
    oracle = draft_layers_oracle(drafter.autoregressive, head)
    hidden, text = torch.randn(2, sum(PARTS), SIZE), torch.randint(VOCAB, (2, sum(PARTS) + 1))
    session, known = ReferenceDrafter(drafter, head), 0
    for part in PARTS:
        draft = session.draft(hidden[:, known : known + part], text[:, known + 1 : known + part + 1], DRAFTS)
        known += part
        assert draft.probs is None
        for row in range(2):
            expected, _ = oracle.draft(hidden[row], text[row, : known + 1].tolist(), DRAFTS, greedy)
            assert draft.tokens[row].tolist() == expected


def test_sampled_drafts_bring_the_distributions_that_they_were_drawn_from() -> None:
    target = make_target("llama")
    drafter, head = make_fastmtp(target), SharedHead.of(target)
    oracle = draft_layers_oracle(drafter.autoregressive, head)
    hidden, text, noise = torch.randn(1, 6, SIZE), torch.randint(VOCAB, (1, 7)), torch.rand(1, DRAFTS).double()
    draft = ReferenceDrafter(drafter, head).draft(hidden, text[:, 1:], DRAFTS, torch.tensor([0.7]), noise)
    assert draft.probs is not None
    tokens = draft.tokens[0].tolist()
    _, logits = oracle.draft(hidden[0], text[0].tolist(), DRAFTS, lambda step, _: tokens[step])
    torch.testing.assert_close(draft.probs[0].double(), (logits / 0.7).softmax(-1), atol=1e-5, rtol=1e-4)
    below = draft.probs[0].cumsum(-1)  # drawn by inversion: the noise falls between the sums before and after
    for step, token in enumerate(tokens):
        assert below[step, token] > noise[0, step]
        assert token == 0 or below[step, token - 1] <= noise[0, step]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_restricted_vocabulary_drafts_its_tokens_only(temperature: float) -> None:
    target = make_target("llama")
    drafter, whole = make_fastmtp(target), SharedHead.of(target)
    ids = torch.tensor([7, 2, 19, 11])
    head = whole.restricted(ids)
    hidden, text, noise = torch.randn(1, 6, SIZE), torch.randint(VOCAB, (1, 7)), torch.rand(1, DRAFTS).double()
    draft = ReferenceDrafter(drafter, head).draft(hidden, text[:, 1:], DRAFTS, torch.tensor([temperature]), noise)
    tokens = draft.tokens[0].tolist()
    assert set(tokens) <= set(ids.tolist())
    _, logits = draft_layers_oracle(drafter.autoregressive, whole).draft(
        hidden[0], text[0].tolist(), DRAFTS, lambda step, _: tokens[step]
    )
    if temperature == 0:
        assert tokens == [int(ids[row[ids].argmax()]) for row in logits]
    else:
        assert draft.probs is not None
        expected = torch.zeros(DRAFTS, VOCAB).double()
        expected[:, ids] = (logits[:, ids] / temperature).softmax(-1)
        torch.testing.assert_close(draft.probs[0].double(), expected, atol=1e-5, rtol=1e-4)
