"""The losses of both parts against a reference implementation: one start at a time, over the whole vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.training.conversation_recipe import MicroBatch
from mtpc.lab.training.recipes import gumiho_loss as losses
from mtpc.lab.training.recipes.gumiho_loss import position_losses
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_methods import gumiho, tiny_target

JOINT: dict[str, object] = {"positions": 2, "blocks": 1, "rank": 2, "component_features": 2, "sum_features": 3}
DRAFTERS: dict[str, Any] = {
    "independent": lambda: gumiho({"positions": 2, "blocks": 1}, num_hidden_layers=2),
    "hmm": lambda: gumiho({**JOINT, "circuit": "hmm"}),
    "cp": lambda: gumiho({**JOINT, "circuit": "cp"}, normed=False),
    "autoregressive alone": lambda: gumiho(None),
}
DRAFTS, LENGTH = 4, 14


class Recorded(ReferenceDrafter):
    """A session that remembers what its window read."""

    known: DraftContext

    def _with_head_inputs(self, known: DraftContext) -> DraftContext:
        self.known = super()._with_head_inputs(known)
        return self.known


@pytest.fixture(scope="module")
def head() -> SharedHead:
    return SharedHead.of(tiny_target())


def texts() -> MicroBatch:
    """Two texts with some starts each."""
    target, generator = tiny_target(), torch.Generator().manual_seed(5)
    tokens = torch.randint(target.config.vocab_size, (2, LENGTH), generator=generator)
    chosen = torch.rand(2, LENGTH - DRAFTS - 1, generator=generator) < 0.6
    hidden = target.model(input_ids=tokens).last_hidden_state
    return MicroBatch(hidden, tokens, chosen, SharedHead.of(target))


def plain(drafter: Drafter, head: SharedHead, hidden: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
    """Of one start: the divergence and the distance of every draft; text is known whole, hidden [L, d]."""
    start, divergence, distance = len(text) - DRAFTS - 2, [], []
    session = Recorded(drafter, head)
    # The draft tokens are those of the text; the session only prepares what the parallel part reads.
    steps, window = drafter.split(DRAFTS)
    states = []
    before, state = hidden[None, : start + 1], None
    layer = drafter.autoregressive
    assert layer is not None
    for step in range(steps):
        # Everything anew: the first step at all positions up to the start, then those of the drafts.
        previous = torch.cat([before, *[found[None, None] for found in states]], 1)
        after = text[1 : start + 2 + step][None]
        positions = torch.arange(previous.shape[1])[None]
        state = layer(head.embed(after), previous, positions, None, None)[0, -1]
        states.append(state)
        divergence.append(_divergence(head, state, hidden[start + 1 + step]))
        distance.append(torch.nn.functional.smooth_l1_loss(state, hidden[start + 1 + step]))
    if window:
        places = torch.stack([hidden[start], *states])[None]
        known = session._with_head_inputs(DraftContext(places, text[start + 1 : start + steps + 2][None]))
        assert drafter.parallel is not None
        rest = text[start + steps + 2 : start + DRAFTS + 2]
        for place in range(window):
            laws = []
            for token in range(head.vocab_size):
                words = torch.tensor([[*rest[:place].tolist(), token]])
                laws.append(drafter.parallel.log_probs(known, words, 1.0)[0, place])
            log_p = head.logits(hidden[start + steps + 1 + place]).log_softmax(-1)
            divergence.append((log_p.exp() * (log_p - torch.stack(laws))).sum())
            made = drafter.parallel.states(known)[0][0, place]  # type: ignore[operator]
            there = hidden[start + steps + 1 + place]
            distance.append(torch.nn.functional.smooth_l1_loss(made[0], there) if len(made) == 1 else torch.zeros(()))
    return torch.stack(divergence), torch.stack(distance)


def _divergence(head: SharedHead, state: Tensor, there: Tensor) -> Tensor:
    log_p, log_q = (head.logits(each).log_softmax(-1) for each in (there, state))
    return (log_p.exp() * (log_p - log_q)).sum()


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("rows", [2, 16])
def test_the_losses_are_those_of_a_plain_loop(
    name: str, rows: int, head: SharedHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "ROWS", rows)
    drafter, part = DRAFTERS[name](), texts()
    divergence, distance = torch.zeros(DRAFTS), torch.zeros(DRAFTS)
    for row, start in part.chosen.nonzero().tolist():
        one = plain(drafter, head, part.hidden[row], part.tokens[row, : start + DRAFTS + 2])
        divergence, distance = divergence + one[0], distance + one[1]
    for regression, classification in ((0.0, 1.0), (1.0, 0.0), (1.0, 0.1)):
        found = position_losses(drafter, part, DRAFTS, regression, classification, "kl")
        expected = regression * distance + classification * divergence
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_weight_that_is_used_gets_a_gradient(name: str) -> None:
    drafter = DRAFTERS[name]().requires_grad_(True)
    position_losses(drafter, texts(), DRAFTS, 1.0, 0.1, "kl").sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in drafter.parameters())
