"""Circuits through an output head of few tokens: what they draft, and that the rest is neither drafted nor evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.parallel import joint
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead
from tests.oracles.drafting import DraftingOracle, along
from tests.oracles.trees import Prefix, prefixes_of
from tests.support.random_hybrid import forget_method, register_method
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

ALONE = ["mtpc-hmm-target", "mtpc-cp-target-token-input"]
DRAFTED = torch.tensor([0, 2, 3])
ROWS, DRAFTS = VOCAB, 3  # a text for each token that the target may have emitted last


@pytest.fixture(scope="module", autouse=True)
def third_method() -> Iterator[None]:
    """The registry knows it while these tests run."""
    register_method()
    yield
    forget_method()


@pytest.fixture(scope="module")
def head() -> SharedHead:
    return SharedHead.of(tiny_target()).restricted(DRAFTED)


def texts() -> tuple[Tensor, Tensor]:
    """States [ROWS, 4, d], and tokens [ROWS, 5] of which the last is another in each row."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(VOCAB, (ROWS, 5), generator=generator)
    tokens[:, -1] = torch.arange(ROWS)
    return torch.randn(ROWS, 4, SIZE, generator=generator), tokens


@pytest.mark.parametrize("name", ALONE)
@torch.inference_mode()
def test_drafts_trees_and_scores_are_those_of_the_oracle(name: str, head: SharedHead) -> None:
    drafter, (hidden, tokens), temperature = EXAMPLES[name](), texts(), torch.linspace(0.6, 1.4, ROWS)
    assert drafter.parallel is not None
    oracle, session = DraftingOracle(drafter, head), ReferenceDrafter(drafter, head)
    noise = torch.rand(ROWS, DRAFTS, generator=torch.Generator().manual_seed(4)).double()
    draft = session.draft(hidden, tokens[:, 1:], DRAFTS, temperature, noise)
    assert draft.probs is not None and torch.isin(draft.tokens, DRAFTED).all()
    tree = session.draft_tree(hidden, tokens[:, 1:], 7, temperature)
    context = with_head_inputs(DraftContext.of_target(hidden[:, -1], tokens[:, -1]), None, head)
    scores = drafter.parallel.log_probs(context, draft.tokens, 1.0)
    for row in range(ROWS):

        @cache
        def laws(prefix: Prefix, heat: float, row: int = row) -> Tensor:
            return oracle.draft(hidden[row], tokens[row].tolist(), len(prefix), along(list(prefix)), heat)[1]

        drafted = tuple(draft.tokens[row].tolist())
        torch.testing.assert_close(draft.probs[row].double(), laws(drafted, float(temperature[row])), atol=1e-4, rtol=0)
        expected = laws(drafted, 1.0)[range(DRAFTS), drafted].log()
        torch.testing.assert_close(scores[row].double(), expected, atol=1e-4, rtol=0)
        for node, score in zip(
            prefixes_of(tree.tokens[row].tolist(), tree.parents[row].tolist()), tree.scores[row].tolist(), strict=True
        ):
            found = laws(node, float(temperature[row]))[range(len(node)), node].prod()
            assert math.exp(score) == pytest.approx(float(found), rel=1e-3)


@pytest.mark.parametrize("name", [*ALONE, "hybrid-hmm-target", "gumiho-hmm"])
@torch.inference_mode()
def test_a_tree_of_one_child_a_node_is_the_greedy_chain(name: str, head: SharedHead) -> None:
    drafter, (hidden, tokens) = EXAMPLES[name](), texts()
    for size in range(1, DRAFTS + 1):
        tree = ReferenceDrafter(drafter, head).draft_tree(hidden, tokens[:, 1:], size, max_children=1)
        chain = ReferenceDrafter(drafter, head).draft(hidden, tokens[:, 1:], size)
        assert torch.equal(tree.tokens, chain.tokens)
        assert tree.parents.tolist() == [list(range(-1, size - 1))] * ROWS


class Counting:
    """Notes the leaves of each product with a head."""

    def __init__(self, head: SharedHead, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        logits = head.logits

        def counted(states: Tensor) -> Tensor:
            made = logits(states)
            self.sizes.append(made.numel())
            return made

        monkeypatch.setattr(head, "logits", counted)


@torch.inference_mode()
def test_memory_is_counted_in_tokens_that_are_drafted(head: SharedHead, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain's leaves and a tree's; drafts are the same in parts."""
    drafter, (hidden, tokens) = EXAMPLES["mtpc-hmm-target"](), texts()
    assert drafter.parallel is not None
    window, rank = drafter.parallel.leaf_shape[:2]
    session = ReferenceDrafter(drafter, head)

    def drafts() -> list[Any]:
        chain = session.draft(hidden, tokens[:, 1:], DRAFTS, torch.ones(ROWS), torch.full((ROWS, DRAFTS), 0.5).double())
        return [*chain[:2], *session.draft_tree(hidden, tokens[:, 1:], 7, torch.ones(ROWS))]

    whole, counting = drafts(), Counting(head, monkeypatch)
    limits = {"MAX_LEAVES": rank * len(DRAFTED) * 2, "MAX_PROBS": window * rank * len(DRAFTED) * 2}
    for name, limit in limits.items():
        monkeypatch.setattr(joint, name, limit)
    parts = drafts()
    for found, expected in zip(parts, whole, strict=True):
        torch.testing.assert_close(found, expected)
    chain, trees = counting.sizes[:-3], counting.sizes[-3:]
    assert max(chain) <= limits["MAX_LEAVES"] < 3 * min(chain)
    assert max(trees) <= limits["MAX_PROBS"] and sum(trees) == ROWS * window * rank * len(DRAFTED)
