"""Trees with borrowed nodes are lossless: random targets, drafters and trees, all choices enumerated."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtpc.draft import TreeDraft
from mtpc.lab.evaluation.trees import matches
from mtpc.parallel.borrow import borrow_nodes
from mtpc.verify.tree import follow_choices
from tests.mtpc.verify.test_exactness import distance
from tests.mtpc.verify.test_tree import emitted_joint, judged_by
from tests.oracles.processes import Process, random_process
from tests.oracles.trees import Prefix, as_draft, prefixes_of, random_tree, to_tensors


class Example(NamedTuple):
    """A target, a tree of drafts, and the same with borrowed nodes in the place of some after the kept ones."""

    target: Process
    given: list[Prefix]
    nodes: list[Prefix]
    kept: int

    @property
    def borrowed(self) -> list[Prefix]:
        """The nodes that would not be there otherwise."""
        return [x for x in self.nodes if x not in self.given]

    @property
    def donors(self) -> dict[Prefix, Prefix]:
        """Whom each of these was borrowed of."""
        return {x: next(donor for donor in self.given if len(donor) == len(x)) for x in self.borrowed}

    def judged_as_published(self) -> Tensor:
        """After a borrowed token the target is asked where the token was drafted: under the donor's ancestors."""
        donors = self.donors
        return judged_by(self.target, [donors.get(x, x) for x in self.nodes])


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Targets where every token depends on all before it, and trees that know nothing of them, borrowing or not."""
    vocabulary, depth, size = draw(st.sampled_from([(2, 2, 5), (2, 3, 7), (2, 4, 9), (3, 2, 5), (3, 3, 6), (3, 4, 7)]))
    count, seed, zeros = draw(st.integers(1, size // 2)), draw(st.integers(0, 1000)), draw(st.booleans())
    tree = random_tree(vocabulary, depth, size, seed)
    more = borrow_nodes(as_draft(tree, {x: 0.9**place for place, x in enumerate(tree)}), count)
    nodes = prefixes_of(more.tokens[0].tolist(), more.parents[0].tolist())
    return Example(random_process(vocabulary, depth + 1, seed, zeros), tree, nodes, size - count)


def greedy_text(target: Process, nodes: list[Prefix], judged: Tensor) -> Prefix:
    """What a greedy step emits."""
    verdict = follow_choices(*to_tensors(nodes), judged[None].argmax(-1))
    return tuple(verdict.tokens[0, : int(verdict.accepted) + 1].tolist())


@settings(max_examples=60)
@given(examples())
def test_the_text_is_the_targets(example: Example) -> None:
    target, judged = example.target, judged_by(example.target, example.nodes)
    assert len(set(example.nodes)) == len(example.given)
    assert distance(emitted_joint(target, example.nodes, judged), target.joint()) < 1e-12
    text = greedy_text(target, example.nodes, judged)
    for place, token in enumerate(text):
        assert token == int(target.conditionals[text[:place]].argmax())


@settings(max_examples=60)
@given(examples())
def test_no_text_is_accepted_less_far(example: Example) -> None:
    """Than by the kept nodes alone, which both trees begin with."""
    kept = example.given[: example.kept]
    assert example.nodes[: example.kept] == kept
    texts = torch.tensor(list(example.target.joint()))
    more, less = (
        matches(TreeDraft(*(each.expand(len(texts), -1) for each in as_draft(nodes))), texts)
        for nodes in (example.nodes, kept)
    )
    assert (more >= less).all()


@settings(max_examples=20)
@given(examples())
def test_control_the_published_way_is_not_lossless(example: Example) -> None:
    """Gumiho's full tree attention is biased if a reachable borrowed token and its donor continue differently."""
    target, after = example.target, example.target.conditionals
    donors = example.donors.items()
    assume(any(target.probability(x) > 0 and not torch.equal(after[x], after[donor]) for x, donor in donors))
    found = emitted_joint(target, example.nodes, example.judged_as_published())
    assert distance(found, target.joint()) > 1e-6


def test_control_the_published_way_changes_greedy_texts() -> None:
    """One borrowed token, met by the target's choice, and another choice after it under the donor's ancestors."""
    target, best = random_process(2, 4, 0), [(0,), (1,), (0, 0), (0, 0, 0), (0, 1)]
    probabilities = {x: 2.0 ** -(1 + i) for i, x in enumerate(best)}
    for prefix, token in {(): 1, (1,): 0, (1, 0): 1, (0, 0): 0}.items():
        target.conditionals[prefix][:] = torch.nn.functional.one_hot(torch.tensor(token), 2)
    more = borrow_nodes(as_draft(best, probabilities), 1)
    nodes = prefixes_of(more.tokens[0].tolist(), more.parents[0].tolist())
    example = Example(target, best, nodes, 4)
    assert nodes == [*best[:4], (1, 0)]
    assert greedy_text(target, nodes, judged_by(target, nodes)) == (1, 0, 1)
    assert greedy_text(target, nodes, example.judged_as_published()) == (1, 0, 0)
