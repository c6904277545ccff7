"""Expected acceptance of trees along a text: by prefixes, against the probabilities of a target, and by budget."""

import pytest
import torch

from mtpc.drafter import Drafter, DrafterConfig, TreeDraft
from mtpc.evaluation.acceptance import decode_acceptance
from mtpc.evaluation.heldout import Continuations, evaluate
from mtpc.evaluation.trees import evaluate_trees, matches
from tests.oracles.processes import random_process
from tests.oracles.trees import prefixes_of, random_tree, to_tensors

VOCAB, HIDDEN, WINDOW, START, LENGTH = 4, 6, 4, 3, 40


def make_drafter(circuit: str, token_input: bool = False) -> Drafter:
    torch.manual_seed(0)
    config = DrafterConfig(circuit, WINDOW, 2, HIDDEN, VOCAB, leaves="table", trunk_size=7, token_input=token_input)
    drafter = Drafter(config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    return drafter


def make_texts(temperature: float, texts: int = 2) -> Continuations:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (texts, START + LENGTH), generator=generator)
    hidden = torch.randn(texts, START + LENGTH, HIDDEN, generator=generator)
    logits = torch.randn(texts, START + LENGTH, VOCAB, generator=generator)
    return Continuations(tokens, hidden, logits, START, temperature)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_acceptance_along_a_text(circuit: str, token_input: bool, temperature: float) -> None:
    """A draft is accepted where the text up to it is one of the prefixes of the tree, found position by position."""
    drafter, texts = make_drafter(circuit, token_input), make_texts(temperature)
    starts = range(START - 1, START - 1 + LENGTH - WINDOW + 1)
    accept = torch.zeros(2, len(starts), WINDOW - 1, dtype=torch.float64)
    for text in range(2):
        for row, t in enumerate(starts):
            token, what_follows = texts.tokens[text, t + 1], texts.tokens[text, t + 2 : t + 1 + WINDOW].tolist()
            state = texts.hidden[text, t]
            draft = drafter.draft_tree(state[None], token[None], torch.tensor([temperature]), 9, 3)
            tree = prefixes_of(draft.tokens[0].tolist(), draft.parents[0].tolist())
            for i in range(WINDOW - 1):
                accept[text, row, i] = tuple(what_follows[: i + 1]) in tree
    expected, found = decode_acceptance(accept), evaluate_trees(drafter, texts, [9], 3)[9]
    assert 0.2 < found.marginal[0] < 1.0
    assert found.length == pytest.approx(expected.length)
    assert found.marginal == pytest.approx(expected.marginal)


@pytest.mark.parametrize(("vocabulary", "depth", "size"), [(2, 4, 9), (3, 3, 5), (3, 3, 20)])
def test_averaged_over_texts_it_is_the_targets_probability_of_the_tree(vocabulary: int, depth: int, size: int) -> None:
    """The sum of the target's probabilities of all nodes, by summing over all texts with theirs."""
    target, tree = random_process(vocabulary, depth, 0), random_tree(vocabulary, depth, size, 0)
    joint = target.joint()
    texts = torch.tensor(list(joint))
    draft = TreeDraft(*(each.expand(len(texts), -1) for each in to_tensors(tree)))
    weight = torch.tensor(list(joint.values()), dtype=torch.float64)
    found = (weight[:, None] * matches(draft, texts)).sum(0)
    by_depth = [sum(target.probability(x) for x in tree if len(x) == level) for level in range(1, depth + 1)]
    assert found.tolist() == pytest.approx(by_depth, abs=1e-12)


@pytest.mark.parametrize("max_children", [None, 2])
@torch.inference_mode()
def test_the_first_nodes_of_a_tree_are_the_smaller_tree(max_children: int | None) -> None:
    drafter, texts = make_drafter("hmm"), make_texts(1.0)
    sizes = (1, 4, 7, 12)
    together = evaluate_trees(drafter, texts, sizes, max_children)
    assert together == {size: evaluate_trees(drafter, texts, [size], max_children)[size] for size in sizes}
    lengths = [rates.length for rates in together.values()]
    assert lengths == sorted(set(lengths))


@torch.inference_mode()
def test_a_chain_of_one_child_a_node_accepts_as_the_greedy_chain() -> None:
    drafter, texts = make_drafter("hmm"), make_texts(0.0)
    found = evaluate_trees(drafter, texts, [WINDOW - 1], 1)[WINDOW - 1]
    assert found == evaluate(drafter, texts)


def test_no_sizes_are_no_trees() -> None:
    assert evaluate_trees(make_drafter("hmm"), make_texts(1.0), []) == {}
