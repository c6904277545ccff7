"""Trees of both parts against plain Python that computes every distribution anew."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.parallel import beams as beams_module
from mtpc.target_head.shared import SharedHead
from tests.oracles.beams import beam_tree
from tests.oracles.drafting import DraftingOracle, along
from tests.oracles.trees import Prefix, prefixes_of
from tests.support.random_hybrid import forget_method, register_method
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

PARTS = (4, 2)  # positions that the target verifies in turn
NAMES = ["gumiho-ff", "gumiho-hmm", "gumiho-cp-one-step", "gumiho-eagle", "fastmtp-llama", "hybrid-hmm"]


@pytest.fixture(scope="module", autouse=True)
def third_method():  # type: ignore[no-untyped-def]
    """The registry knows it while these tests run."""
    register_method()
    yield
    forget_method()


@pytest.fixture(scope="module")
def head() -> SharedHead:
    return SharedHead.of(tiny_target())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("beams", "size", "depth"), [(VOCAB, 12, 3), (2, 7, 4), (3, 9, 2), (1, 3, 3)])
@torch.inference_mode()
def test_the_nodes_are_the_most_probable_prefixes(
    name: str, beams: int, size: int, depth: int, head: SharedHead
) -> None:
    drafter = EXAMPLES[name]()
    oracle, session, known = DraftingOracle(drafter, head), ReferenceDrafter(drafter, head), 0
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(2, sum(PARTS), SIZE, generator=generator)
    text = torch.randint(VOCAB, (2, sum(PARTS) + 1), generator=generator)
    temperature = torch.tensor([1.0, 0.7])
    steps = drafter.config.draft_steps
    steps = depth if steps is None else min(steps, depth)
    for part in PARTS:
        new = slice(known, known + part)
        tree = session.draft_tree(hidden[:, new], text[:, 1:][:, new], size, temperature, beams, depth=depth)
        known += part
        for row in range(2):

            @cache
            def law(prefix: Prefix, row: int = row, known: int = known) -> list[float]:
                before, heat = text[row, : known + 1].tolist(), float(temperature[row])
                choose = along([*prefix, 0])
                _, laws = oracle.draft(hidden[row, :known], before, len(prefix) + 1, choose, heat)
                return laws[-1].tolist()  # type: ignore[no-any-return]

            found = prefixes_of(tree.tokens[row].tolist(), tree.parents[row].tolist())
            expected = beam_tree(law, steps, depth, beams, size)
            assert found == list(expected)
            assert tree.scores[row].exp().tolist() == pytest.approx(list(expected.values()), rel=1e-4)
    draft = session.draft(hidden[:, :1], text[:, 1:2], 1)  # the cache is as if no tree had been drafted
    plain = ReferenceDrafter(drafter, head)
    plain.draft(hidden, text[:, 1:], 1)
    assert torch.equal(draft.tokens, plain.draft(hidden[:, :1], text[:, 1:2], 1).tokens)


@torch.inference_mode()
def test_a_position_offers_so_many_candidates(head: SharedHead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of independent heads they are the most probable tokens after any prefix."""
    monkeypatch.setattr(beams_module, "CANDIDATES", 2)
    drafter, hidden = EXAMPLES["gumiho-ff"](), torch.randn(1, 3, SIZE, generator=torch.Generator().manual_seed(8))
    oracle, text = DraftingOracle(drafter, head), [1, 3, 0, 2]
    tree = ReferenceDrafter(drafter, head).draft_tree(hidden, torch.tensor([text[1:]]), 40, None, 4, depth=4)

    @cache
    def law(prefix: Prefix) -> list[float]:
        _, laws = oracle.draft(hidden[0], text, len(prefix) + 1, along([*prefix, 0]))
        return laws[-1].tolist()  # type: ignore[no-any-return]

    found = prefixes_of(tree.tokens[0].tolist(), tree.parents[0].tolist())
    assert found == list(beam_tree(law, 2, 4, 4, 40, offered=2))


def test_a_tree_that_does_not_fit(head: SharedHead) -> None:
    drafter, hidden, text = EXAMPLES["gumiho-eagle"](), torch.randn(1, 3, SIZE), torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(MTPCError, match=r"of 7 nodes does not fit: depth and children leave room for 6\.$"):
        ReferenceDrafter(drafter, head).draft_tree(hidden, text, 7, max_children=2, depth=2)
