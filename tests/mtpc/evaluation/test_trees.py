"""Expected acceptance of trees along a text: by prefixes, against the probabilities of a target, and by budget."""

import pytest
import torch

from mtpc.draft import Known, TreeDraft
from mtpc.errors import MTPCError
from mtpc.evaluation.acceptance import counts_along
from mtpc.evaluation.scorer import step_acceptance
from mtpc.evaluation.texts import View
from mtpc.evaluation.trees import matches, tree_acceptance, window_of_trees
from mtpc.families.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from mtpc.verify import Rates
from tests.oracles.processes import random_process
from tests.oracles.trees import as_draft, prefixes_of, random_tree
from tests.support.tiny_models import make_fastmtp, make_mtpc, make_target

VOCAB, HIDDEN, WINDOW, START, LENGTH = 4, 6, 4, 3, 40
NO_HEAD = SharedHead(torch.empty(VOCAB, HIDDEN), torch.empty(VOCAB, HIDDEN))  # a window alone does not read it


def make_drafter(circuit: str, token_input: bool = False) -> Drafter:
    return make_mtpc(circuit, WINDOW, 2, HIDDEN, VOCAB, leaves="table", trunk_size=7, token_input=token_input)


def make_texts(texts: int = 2) -> list[View]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (texts, START + LENGTH), generator=generator)
    hidden = torch.randn(texts, START + LENGTH, HIDDEN, generator=generator)
    logits = torch.randn(texts, START + LENGTH, VOCAB, generator=generator)
    return [View(*text, START) for text in zip(tokens, hidden, logits, strict=True)]


def rates_of_trees(
    drafter: Drafter, sizes: list[int], temperature: float, max_children: int | None = None
) -> dict[int, Rates]:
    window = window_of_trees("x", drafter, sizes, max_children)
    found = [tree_acceptance(window, text, sizes, temperature, max_children) for text in make_texts()]
    return {size: counts_along(accept[size] for accept in found).rates for size in sizes}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_acceptance_along_a_text(circuit: str, token_input: bool, temperature: float) -> None:
    """A draft is accepted where the text up to it is one of the prefixes of the tree, found position by position."""
    drafter, texts = make_drafter(circuit, token_input), make_texts()
    assert drafter.window is not None
    starts = range(START - 1, START - 1 + LENGTH - WINDOW + 1)
    accept = torch.zeros(2, len(starts), WINDOW - 1, dtype=torch.float64)
    for number, text in enumerate(texts):
        for row, t in enumerate(starts):
            known, what_follows = text.tokens[t + 1], text.tokens[t + 2 : t + 1 + WINDOW].tolist()
            given = Known.of_target(text.hidden[None, t], known[None])
            draft = drafter.window.draft_tree(given, torch.tensor([temperature]), 9, 3)
            tree = prefixes_of(draft.tokens[0].tolist(), draft.parents[0].tolist())
            for i in range(WINDOW - 1):
                accept[number, row, i] = tuple(what_follows[: i + 1]) in tree
    expected, found = counts_along(accept).rates, rates_of_trees(drafter, [9], temperature, 3)[9]
    assert 0.2 < found.marginal[0] < 1.0
    assert found.length == pytest.approx(expected.length)
    assert found.marginal == pytest.approx(expected.marginal)


@pytest.mark.parametrize(("vocabulary", "depth", "size"), [(2, 4, 9), (3, 3, 5), (3, 3, 20)])
def test_averaged_over_texts_it_is_the_targets_probability_of_the_tree(vocabulary: int, depth: int, size: int) -> None:
    """The sum of the target's probabilities of all nodes, by summing over all texts with theirs."""
    target, tree = random_process(vocabulary, depth, 0), random_tree(vocabulary, depth, size, 0)
    joint = target.joint()
    texts = torch.tensor(list(joint))
    draft = TreeDraft(*(each.expand(len(texts), -1) for each in as_draft(tree)))
    weight = torch.tensor(list(joint.values()), dtype=torch.float64)
    found = (weight[:, None] * matches(draft, texts)).sum(0)
    by_depth = [sum(target.probability(x) for x in tree if len(x) == level) for level in range(1, depth + 1)]
    assert found.tolist() == pytest.approx(by_depth, abs=1e-12)


@pytest.mark.parametrize("max_children", [None, 2])
@torch.inference_mode()
def test_the_first_nodes_of_a_tree_are_the_smaller_tree(max_children: int | None) -> None:
    drafter, sizes = make_drafter("hmm"), [1, 4, 7, 12]
    together = rates_of_trees(drafter, sizes, 1.0, max_children)
    assert together == {size: rates_of_trees(drafter, [size], 1.0, max_children)[size] for size in sizes}
    lengths = [rates.length for rates in together.values()]
    assert lengths == sorted(set(lengths))


@torch.inference_mode()
def test_a_chain_of_one_child_a_node_accepts_as_the_greedy_chain() -> None:
    drafter = make_drafter("hmm")
    chains = [step_acceptance(drafter, NO_HEAD, text, WINDOW - 1, 0.0) for text in make_texts()]
    assert rates_of_trees(drafter, [WINDOW - 1], 0.0, 1)[WINDOW - 1] == counts_along(chains).rates


def test_a_text_without_room_for_a_tree() -> None:
    (text, _), drafter = make_texts(), make_drafter("hmm")
    short = View(*(whole[: START + 2] for whole in text[:3]), START)
    window = window_of_trees("x", drafter, [3], None)
    assert tree_acceptance(window, short, [3], 1.0)[3].shape == (0, WINDOW - 1)


def test_what_grows_no_such_tree_is_refused() -> None:
    with pytest.raises(MTPCError, match="layer has a serial part, but only trees of a window alone are scored"):
        window_of_trees("layer", make_fastmtp(make_target("llama")), [7], None)
    with pytest.raises(MTPCError, match="a draft tree of 7 nodes does not fit"):
        window_of_trees("x", make_drafter("hmm"), [7], 1)
