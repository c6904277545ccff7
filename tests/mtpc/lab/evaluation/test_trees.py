"""Expected acceptance of trees along a text: by prefixes, against the probabilities of a target, and by budget."""

import pytest
import torch

from mtpc.draft import DraftContext, TreeDraft
from mtpc.errors import MTPCError
from mtpc.lab.evaluation import autoregressive_trees
from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.rates import Rates
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import TextFeatures
from mtpc.lab.evaluation.trees import TreeSettings, check_trees, matches, tree_acceptance
from mtpc.methods.drafter import Drafter
from mtpc.parallel.borrow import borrow_nodes
from mtpc.target_head.shared import SharedHead
from tests.oracles.processes import random_process
from tests.oracles.trees import as_draft, prefixes_of, random_tree
from tests.support.tiny_methods import EXAMPLES, tiny_target
from tests.support.tiny_methods import VOCAB as TOKENS
from tests.support.tiny_models import SIZE, make_fastmtp, make_mtpc, make_target

VOCAB, HIDDEN, WINDOW, START, LENGTH = 4, 6, 4, 3, 40
NO_HEAD = SharedHead(torch.empty(VOCAB, HIDDEN), torch.empty(VOCAB, HIDDEN))  # a window alone does not read it


def make_drafter(circuit: str, token_input: bool = False) -> Drafter:
    return make_mtpc(circuit, WINDOW, 2, HIDDEN, VOCAB, leaves="table", trunk_size=7, token_input=token_input)


def make_texts(texts: int = 2) -> list[TextFeatures]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (texts, START + LENGTH), generator=generator)
    hidden = torch.randn(texts, START + LENGTH, HIDDEN, generator=generator)
    logits = torch.randn(texts, START + LENGTH, VOCAB, generator=generator)
    return [TextFeatures(*text, START) for text in zip(tokens, hidden, logits, strict=True)]


def rates_of_trees(
    drafter: Drafter, sizes: list[int], temperature: float, max_children: int | None = None
) -> dict[int, Rates]:
    trees = TreeSettings(sizes, (), max_children)
    found = [tree_acceptance(drafter, NO_HEAD, text, trees, temperature, WINDOW - 1) for text in make_texts()]
    return {size: counts_along(accept[f"tree of {size}"] for accept in found).rates for size in sizes}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_acceptance_along_a_text(circuit: str, token_input: bool, temperature: float) -> None:
    """A draft is accepted where the text up to it is one of the prefixes of the tree, found position by position."""
    drafter, texts = make_drafter(circuit, token_input), make_texts()
    assert drafter.parallel is not None
    starts = range(START - 1, START - 1 + LENGTH - WINDOW + 1)
    accept = torch.zeros(2, len(starts), WINDOW - 1, dtype=torch.float64)
    for number, text in enumerate(texts):
        for row, t in enumerate(starts):
            known, what_follows = text.tokens[t + 1], text.tokens[t + 2 : t + 1 + WINDOW].tolist()
            given = DraftContext.of_target(text.hidden[None, t], known[None])
            draft = drafter.parallel.draft_tree(given, torch.tensor([temperature]), 9, 3)
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
    short = TextFeatures(*(whole[: START + 2] for whole in text[:3]), START)
    found = tree_acceptance(drafter, NO_HEAD, short, TreeSettings((3,), (2,)), 1.0, WINDOW - 1)
    assert {title: accept.shape for title, accept in found.items()} == {
        "tree of 3": (0, WINDOW - 1),
        "tree of 3 + 2 borrowed": (0, WINDOW - 1),
    }


NAMES = ["gumiho-ff", "gumiho-hmm", "gumiho-eagle", "fastmtp-llama", "hybrid-hmm", "mtpc-hmm-target"]


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_through_the_targets_head_they_are_the_trees_of_the_plain_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a few positions at a time, whose prefixes lie in one row, are those of a session that reads the text."""
    monkeypatch.setattr(autoregressive_trees, "MAX_PROBABILITIES", 200)
    drafter, head, depth = EXAMPLES[name](), SharedHead.of(tiny_target()), 4
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(TOKENS, (START + 12,), generator=generator)
    text = TextFeatures(
        tokens, torch.randn(len(tokens), SIZE, generator=generator), torch.empty(len(tokens), TOKENS), START
    )
    trees = TreeSettings((5, 9), (2,), 3)
    found = tree_acceptance(drafter, head, text, trees, 0.7, depth)
    positions, following = text.steps(depth)
    for title, nodes, count in trees.titles():
        session, known = ReferenceDrafter(drafter, head), 0
        for row, position in enumerate(range(positions.start, positions.stop)):
            new, after, known = slice(known, position + 1), tokens[None, known + 1 : position + 2], position + 1
            tree = session.draft_tree(text.hidden[None, new], after, nodes, torch.tensor([0.7]), 3, depth=depth)
            expected = matches(borrow_nodes(tree, count), following[row : row + 1, 1:])[0]
            assert torch.equal(found[title][row].bool(), expected), (title, row)
    lengths = {title: float(accept.sum()) for title, accept in found.items()}
    assert 0 < lengths["tree of 5"] <= lengths["tree of 5 + 2 borrowed"] and lengths["tree of 5"] < lengths["tree of 9"]


def test_what_grows_no_such_tree_is_refused() -> None:
    target = make_target("llama")
    with pytest.raises(MTPCError, match="a draft tree of 7 nodes does not fit"):
        check_trees(make_fastmtp(target), SharedHead.of(target), TreeSettings((7,), (), 1), 3)
    with pytest.raises(MTPCError, match="a draft tree of 7 nodes does not fit"):
        check_trees(make_drafter("hmm"), NO_HEAD, TreeSettings((5,), (2,), 1), WINDOW - 1)
