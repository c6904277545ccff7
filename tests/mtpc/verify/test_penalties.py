"""Penalties at each node of a tree are those of the text that leads there, token after token."""

from __future__ import annotations

import pytest
import torch

from mtpc.verify.output import PADDING
from mtpc.verify.penalties import Penalties, add_counts, forbid_early_ends, penalize
from tests.oracles.penalties import penalized

V = 7  # so few that trees repeat the text's tokens, and their own
CHAIN = [-1, 0, 1, 2]
TREE = [-1, 0, -1, 2, 2, 4]


def path(parents: list[int], node: int) -> list[int]:
    """From the root, numbered 0, to a node, itself included."""
    return ([*path(parents, parents[node - 1] + 1), node]) if node else [0]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "one token late"])
@pytest.mark.parametrize("parents", [CHAIN, TREE], ids=["chain", "tree"])
def test_each_node_is_penalized_by_the_tokens_that_lead_to_it(parents: list[int], late: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    strengths = [[0.5, 0.0, 1.0], [0.0, -0.7, 1.0], [0.0, 0.0, 1.3], [0.3, 0.4, 0.8], [0.0, 0.0, 1.0]]
    rows, width = len(strengths), len(parents) + 1
    for _ in range(20):
        texts = [torch.randint(V, (size,), generator=generator).tolist() for size in (0, 1, 3, 9, 2)]
        tokens = torch.randint(V, (rows, width), generator=generator)
        logits = torch.randn(rows, width, V, generator=generator)
        counts = torch.tensor([[text.count(token) for token in range(V)] for text in texts])
        found = penalize(
            logits, tokens, torch.tensor([parents] * rows), counts, Penalties(*torch.tensor(strengths).T), late
        )
        for row, text in enumerate(texts):
            for node in range(width):
                leading = [int(tokens[row, each]) for each in path(parents, node)]
                known = text + (leading[:-1] if late else leading)
                expected = penalized(logits[row, node], known, *strengths[row])
                assert torch.allclose(found[row, node], expected, atol=1e-6)


def test_a_node_that_is_nowhere_changes_no_other() -> None:
    logits, counts = torch.randn(1, 3, V), torch.zeros(1, V, dtype=torch.int32)
    penalties = Penalties(torch.ones(1), torch.zeros(1), torch.ones(1))
    found = penalize(logits, torch.tensor([[2, PADDING, 3]]), torch.tensor([[-1, -1]]), counts, penalties, False)
    expected = logits.clone()
    expected[0, :, 2] -= 1
    expected[0, 2, 3] -= 1
    assert torch.allclose(found[:, [0, 2]], expected[:, [0, 2]])


@pytest.mark.parametrize("parents", [CHAIN, TREE], ids=["chain", "tree"])
def test_no_text_ends_before_it_may(parents: list[int]) -> None:
    missing, ends = [-2, 0, 1, 2, 9], [[0, 0], [0, 3], [5, 5], [6, 0], [1, 2]]
    logits = torch.randn(len(missing), len(parents) + 1, V)
    found = forbid_early_ends(logits, torch.tensor([parents] * len(missing)), torch.tensor(ends), torch.tensor(missing))
    for row, least in enumerate(missing):
        for node in range(len(parents) + 1):
            expected = logits[row, node].clone()
            if len(path(parents, node)) - 1 < least:  # the token drawn there is the first after as many drafts
                expected[ends[row]] = -torch.inf
            assert torch.equal(found[row, node], expected)


def test_tokens_are_counted_as_often_as_they_come() -> None:
    counts = torch.zeros(2, V, dtype=torch.int32)
    add_counts(counts, torch.tensor([[1, 1, 4], [0, PADDING, PADDING]]))
    assert counts.tolist() == [[0, 2, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]]
