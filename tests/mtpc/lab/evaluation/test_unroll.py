"""K steps at once against one draft after the other."""

from __future__ import annotations

import pytest
import torch

from mtpc.lab.evaluation.unroll import unroll
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_models import KINDS, SIZE, VOCAB, draft_layers_oracle, make_layer, make_target

STARTS, STEPS = 5, 3


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_drafting_along_the_text(kind: str) -> None:
    target = make_target(kind)
    layer, head = make_layer(target), SharedHead.of(target)
    oracle = draft_layers_oracle(layer, head)
    hidden, text = torch.randn(1, STARTS, SIZE), torch.randint(VOCAB, (1, STARTS + STEPS + 1))
    states = list(unroll(layer, head, hidden, text, STEPS))
    tokens = text[0].tolist()
    for start in range(STARTS):
        follow = tokens[start + 2 :]
        _, logits = oracle.draft(hidden[0], tokens[: start + 2], STEPS, lambda step, _, to=follow: to[step])
        own = torch.stack([head.logits(state[0, start]) for state in states])
        torch.testing.assert_close(own.double(), logits, atol=1e-4, rtol=1e-4)


def test_padding_and_later_text_change_nothing_before() -> None:
    target = make_target("llama")
    layer, head = make_layer(target), SharedHead.of(target)
    hidden, text = torch.randn(2, STARTS, SIZE), torch.randint(VOCAB, (2, STARTS + STEPS + 1))
    hidden[1], text[1] = hidden[0], text[0]
    hidden[1, 3:], text[1, 3 + STEPS :] = 0.0, 0  # the last tokens that start 2 reads are those before
    for states in unroll(layer, head, hidden, text, STEPS):
        torch.testing.assert_close(states[0, :3], states[1, :3])


def test_some_starts_have_the_states_that_they_have_among_all() -> None:
    target = make_target("llama")
    layer, head = make_layer(target), SharedHead.of(target)
    hidden, text = torch.randn(2, STARTS, SIZE), torch.randint(VOCAB, (2, STARTS + STEPS + 1))
    chosen = torch.tensor([[False, False, True, True, False], [True, False, False, False, True]])
    whole = unroll(layer, head, hidden, text, STEPS)
    for found, expected in zip(unroll(layer, head, hidden, text, STEPS, chosen), whole, strict=True):
        torch.testing.assert_close(found[chosen], expected[chosen])
    assert not found[0, 0].any(), "nothing is computed of a start that nobody reads"
