"""The reference decoding loop with trees is lossless, accepts more than with chains, and agrees with `mtpc.verify`."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor

from mtpc.draft import TreeDraft
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.methods.drafter import Drafter
from mtpc.verify.tree import follow_choices
from tests.oracles.decoding import Target, decode, decode_with_trees
from tests.oracles.toy import CIRCUIT_RUNS, DRAFTS, START, STATES, TARGET, circuit_drafter, session
from tests.oracles.trees import as_draft, prefixes_of

SIZE = 9
KINDS = ("ff", "cp", "hmm", "btree")


class WholeTree:
    """Drafts every continuation of `depth` tokens."""

    def __init__(self, depth: int) -> None:
        lengths = range(1, depth + 1)
        prefixes = [x for length in lengths for x in product(range(STATES), repeat=length)]
        self.draft = as_draft(prefixes)

    def draft_tree(
        self, hidden: Tensor, following: Tensor, size: int, temperature: Tensor | None, max_children: int | None
    ) -> TreeDraft:
        """As `mtpc.lab.evaluation.reference.ReferenceDrafter.draft_tree`; the arguments are not needed."""
        return self.draft


def first_three(drafter: Drafter, temperature: float, target: Target = TARGET) -> Counter[tuple[int, ...]]:
    """The first three tokens of seeded runs."""
    with torch.no_grad():
        return Counter(
            tuple(decode_with_trees(target, session(drafter), [START], 3, SIZE, temperature, seed).tokens)
            for seed in range(CIRCUIT_RUNS)
        )


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_trees_of_circuits_are_lossless(kind: str, temperature: float) -> None:
    counts = first_three(circuit_drafter(kind), temperature)
    assert chi_square(counts, TARGET.joint(START, 3, temperature)).p > 1e-4


def test_control_a_target_at_another_temperature_is_found() -> None:
    assert chi_square(first_three(circuit_drafter("hmm"), 0.5), TARGET.joint(START, 3, 1.0)).p < REJECT_BELOW


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_decoding_is_unchanged(kind: str) -> None:
    with torch.no_grad():
        for start in range(STATES):
            decoded = decode_with_trees(TARGET, session(circuit_drafter(kind)), [start], 20, SIZE, temperature=0.0)
            assert decoded.tokens == decode(TARGET, [start], 20, temperature=0.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_whole_tree_is_accepted_to_its_depth(temperature: float) -> None:
    decoded = decode_with_trees(TARGET, WholeTree(2), [START], 31, 20, temperature)
    assert decoded.accepted == [2] * 10
    assert decoded.acceptance_length() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_larger_tree_accepts_more_than_a_chain(kind: str) -> None:
    """A chain is the tree of one child a node."""
    drafter = circuit_drafter(kind)
    with torch.no_grad():
        chain = decode_with_trees(TARGET, session(drafter), [START], 600, DRAFTS, 1.0, max_children=1)
        tree = decode_with_trees(TARGET, session(drafter), [START], 600, 24, 1.0)
    assert tree.acceptance_length() > chain.acceptance_length() + 0.2


def test_the_loop_and_the_batched_rule_walk_alike() -> None:
    """Every step of a greedy run, judged by the batched rule from the target's view of the whole tree."""
    seen: list[tuple[TreeDraft, int]] = []

    class Watched:
        def draft_tree(
            self, hidden: Tensor, following: Tensor, size: int, temperature: Tensor | None, max_children: int | None
        ) -> TreeDraft:
            draft = session(circuit_drafter()).draft_tree(hidden, following, size, temperature, max_children)
            seen.append((draft, int(following[0, -1])))
            return draft

    with torch.no_grad():
        decoded = decode_with_trees(TARGET, Watched(), [START], 40, SIZE, 0.0)
    assert len(set(decoded.accepted)) > 1
    for (draft, token), accepted in zip(seen, decoded.accepted, strict=True):
        prefixes = prefixes_of(draft.tokens[0].tolist(), draft.parents[0].tolist())
        logits = torch.stack([TARGET(torch.tensor([token, *x]))[1][-1] for x in [(), *prefixes]])
        assert follow_choices(draft.tokens, draft.parents, logits[None].argmax(-1)).accepted.item() == accepted
