"""A drafter that is prompt lookup alone, in the reference implementation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.evaluate import DrafterScorer, EvaluationPlan
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.prompt_lookup.mixture import Copied
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

HIDDEN, FOLLOWING = torch.zeros(2, 3, SIZE), torch.tensor([[1, 2, 3], [3, 2, 1]])
TOKENS = torch.tensor([[4, 1, 2, 2], [0, 0, 3, 1]])
CHANCES = torch.tensor([[0.5, 0.6, 0.7, 0.8], [0.0, 0.0, 0.0, 0.0]])


@pytest.fixture(scope="module")
def session() -> ReferenceDrafter:
    return ReferenceDrafter(EXAMPLES["copying"](), SharedHead.of(tiny_target()))


@pytest.mark.parametrize("drafts", [1, 3, 4])
def test_drafts_are_what_is_copied_for_certain(session: ReferenceDrafter, drafts: int) -> None:
    copied = Copied(TOKENS, CHANCES)
    greedy = session.draft(HIDDEN, FOLLOWING, drafts, copied=copied)
    assert greedy.tokens.tolist() == TOKENS[:, :drafts].tolist()
    assert greedy.probs is None
    for temperature in (torch.tensor([1.0, 0.5]), torch.tensor([0.0, 1.0])):
        sampled = session.draft(HIDDEN, FOLLOWING, drafts, temperature, torch.zeros(2, 0).double(), copied)
        assert sampled.tokens.tolist() == TOKENS[:, :drafts].tolist()
        assert torch.equal(sampled.probs, F.one_hot(TOKENS[:, :drafts], VOCAB).float())


def test_without_a_text_it_drafts_something(session: ReferenceDrafter) -> None:
    """An engine warms up before there is any."""
    assert session.draft(HIDDEN, FOLLOWING, 2).tokens.tolist() == [[0, 0], [0, 0]]


def test_it_has_no_law_and_no_trees(session: ReferenceDrafter) -> None:
    window = session.drafter.parallel
    assert window is not None
    with pytest.raises(MTPCError, match="no distribution of its own"):
        window.log_probs(None, TOKENS, 1.0)  # type: ignore[arg-type]
    with pytest.raises(MTPCError, match="tiny only copies"):
        DrafterScorer("tiny", session.drafter, session.head, EvaluationPlan())
    with pytest.raises(MTPCError, match="cannot draft trees"):
        session.draft_tree(HIDDEN, FOLLOWING, 3)
