"""Trees of both parts against the reference implementation's, with the core's layers instead of SGLang's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.parallel.beams import Beams
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead
from sglang_mtpc.beam_tree import draft_tree
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchStep
from tests.support.random_hybrid import register_method
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

ROWS, LENGTH = 3, 5


@pytest.fixture(scope="module", autouse=True)
def third_method() -> None:
    """The registry knows it, from here on: fixtures of the session count on it."""
    register_method()


class Layers:
    """What is read of a `DraftLayersModel`, and SGLang's pass for the beams, from a session."""

    def __init__(self, session: ReferenceDrafter) -> None:
        self.session = session

    def head(self, requests: int) -> SharedHead:
        assert requests == ROWS
        return self.session.head

    def with_head_inputs(self, known: DraftContext, requests: int) -> DraftContext:
        assert requests == ROWS
        assert self.session.drafter.autoregressive is not None
        return with_head_inputs(known, self.session.drafter.autoregressive, self.session.head)

    def again(self, beams: Beams, first: Tensor) -> Tensor:
        rows = torch.arange(ROWS).repeat_interleave(beams.tokens.shape[1])
        self.session.cache.reorder_cache(rows)
        return self.session._step(first[rows, None], beams.tokens.view(-1, 1))[:, 0]


class Input:
    """SGLang's ``EagleDraftInput``, as far as it is read."""

    def __init__(self, hidden_states: Tensor, bonus_tokens: Tensor) -> None:
        self.hidden_states, self.bonus_tokens = hidden_states, bonus_tokens


@pytest.mark.parametrize("name", ["gumiho-ff", "gumiho-hmm", "gumiho-cp-one-step", "hybrid-hmm"])
@pytest.mark.parametrize(
    "shape", [DraftShape(4, 2, 9), DraftShape(3, 4, 20), DraftShape(3, 3, 3), DraftShape(4, 3, 20, 6)], ids=str
)
@torch.inference_mode()
def test_the_tree_is_the_plain_loops(name: str, shape: DraftShape) -> None:
    drafter, head = EXAMPLES[name](), SharedHead.of(tiny_target())
    generator = torch.Generator().manual_seed(6)
    hidden = torch.randn(ROWS, LENGTH, SIZE, generator=generator)
    following = torch.randint(VOCAB, (ROWS, LENGTH), generator=generator)
    temperature = torch.tensor([1.0, 0.0, 0.6])
    expected = ReferenceDrafter(drafter, head).draft_tree(
        hidden, following, shape.nodes, temperature, shape.children, depth=shape.depth
    )
    session = ReferenceDrafter(drafter, head)
    first, layers = session._step(hidden, following)[:, -1], Layers(session)
    step = BatchStep("mixed", temperature, torch.zeros(ROWS), torch.zeros(ROWS))
    given = Input(torch.cat([hidden[:, -1], first], 1), following[:, -1])
    assert drafter.parallel is not None
    again = layers.again if drafter.split(shape.depth)[0] == 2 else None
    laps: list[str] = []
    found = draft_tree(given, step, shape, layers, drafter.parallel, again, laps.append)
    assert laps == ["tree", *(["tree"] if again else []), "parallel", "tree"]
    expected = borrow_nodes(expected, shape.borrowed)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.parents, expected.parents)
