"""Requirements on the drafts of every draft method of the registry, including the third one (tests/support/hybrid).

Drafts are compared with a reference implementation that computes everything anew, and their distribution is tested.
Directories: see test_directories.py.  Prompt lookup: see test_prompt_lookup_part.py and tests/mtpc/prompt_lookup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from mtpc.draft import Draft
from mtpc.errors import MTPCError
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.methods import draft_methods
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from tests.oracles.drafting import DraftingOracle, along, most_probable
from tests.support.random_hybrid import forget_method, register_method
from tests.support.tiny_methods import EXAMPLES, VOCAB, WITH_PARTS, tiny_target
from tests.support.tiny_models import SIZE

PARTS = (5, 1, 3)  # positions that the target verifies in turn
MOST = 4  # drafts that are compared: all of a window, the first of a layer that drafts on and on
DRAWS, CELLS = 6000, 3  # drafts of the chi-square test, and tokens of each

examples = pytest.mark.parametrize("example", WITH_PARTS)


@pytest.fixture(scope="module", autouse=True)
def third_method() -> Iterator[None]:
    """The registry knows it while these tests run."""
    register_method()
    yield
    forget_method()


@pytest.fixture(scope="module")
def head() -> SharedHead:
    return SharedHead.of(tiny_target())


def most(drafter: Drafter) -> int:
    """Drafts to ask for at most."""
    return min(MOST, drafter.config.max_drafts)


def texts(rows: int, length: int = sum(PARTS)) -> tuple[Tensor, Tensor]:
    """States [rows, length, d] and tokens [rows, length + 1]."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(VOCAB, (rows, length + 1), generator=generator)
    return torch.randn(rows, length, SIZE, generator=generator), tokens


def uniforms(rows: int, size: int) -> Tensor:
    return torch.rand(rows, size, generator=torch.Generator().manual_seed(4)).double()


def drafted(
    drafter: Drafter, head: SharedHead, rows: slice, temperature: Tensor, noise: Tensor, num_drafts: int
) -> Draft:
    """Sampled drafts of some rows of five texts."""
    hidden, tokens = texts(5)
    return ReferenceDrafter(drafter, head).draft(
        hidden[rows], tokens[rows, 1:], num_drafts, temperature[rows], noise[rows, :num_drafts]
    )


def test_every_family_has_an_example() -> None:
    """Draft models with other tokenizers have their own tests: tests/mtpc/draft_model."""
    names = {method.name for method in draft_methods() if not method.reads_text}
    assert names == {name.split("-")[0] for name in EXAMPLES}


@examples
@torch.inference_mode()
def test_greedy_drafts_are_those_of_the_oracle(example: str, head: SharedHead) -> None:
    """For every K, while the text grows; each is the most probable token of the law that is stated for it."""
    drafter = EXAMPLES[example]()
    oracle, (hidden, tokens) = DraftingOracle(drafter, head), texts(2)
    for num_drafts in range(1, most(drafter) + 1):
        session, known = ReferenceDrafter(drafter, head), 0
        for part in PARTS:
            new = slice(known, known + part)
            draft = session.draft(hidden[:, new], tokens[:, 1:][:, new], num_drafts)
            known += part
            assert draft.probs is None
            for row in range(2):
                text = tokens[row, : known + 1].tolist()
                expected, _ = oracle.draft(hidden[row, :known], text, num_drafts, most_probable)
                assert draft.tokens[row].tolist() == expected


@examples
@torch.inference_mode()
def test_sampled_drafts_state_the_law_of_the_oracle(example: str, head: SharedHead) -> None:
    drafter = EXAMPLES[example]()
    oracle, (hidden, tokens) = DraftingOracle(drafter, head), texts(2)
    temperature = torch.tensor([0.6, 1.3])
    for num_drafts in range(1, most(drafter) + 1):
        session, known = ReferenceDrafter(drafter, head), 0
        for part in PARTS:
            new, noise = slice(known, known + part), uniforms(2, num_drafts)
            draft = session.draft(hidden[:, new], tokens[:, 1:][:, new], num_drafts, temperature, noise)
            known += part
            assert draft.probs is not None
            assert draft.tokens.shape == (2, num_drafts)
            for row in range(2):
                text, choose = tokens[row, : known + 1].tolist(), along(draft.tokens[row].tolist())
                _, laws = oracle.draft(hidden[row, :known], text, num_drafts, choose, float(temperature[row]))
                torch.testing.assert_close(draft.probs[row].double(), laws, atol=1e-4, rtol=1e-3)


@examples
@torch.inference_mode()
def test_what_is_drawn_follows_what_is_stated(example: str, head: SharedHead) -> None:
    """The joint distribution of the first drafts, over all their values; control: another temperature."""
    drafter, temperature = EXAMPLES[example](), 0.9
    oracle, (hidden, tokens) = DraftingOracle(drafter, head), texts(1, PARTS[0])
    count = min(CELLS, most(drafter))
    draft = ReferenceDrafter(drafter, head).draft(
        hidden.expand(DRAWS, -1, -1),
        tokens[:, 1:].expand(DRAWS, -1),
        count,
        torch.full((DRAWS,), temperature),
        uniforms(DRAWS, count),
    )
    counts = Counter(map(tuple, draft.tokens.tolist()))

    def joint(temperature: float) -> dict[tuple[int, ...], float]:
        law = {}
        for before in product(range(VOCAB), repeat=count - 1):
            _, laws = oracle.draft(hidden[0], tokens[0].tolist(), count, along([*before, 0]), temperature)
            known = laws[range(count - 1), before].prod()
            law |= {(*before, last): float(known * laws[-1, last]) for last in range(VOCAB)}
        return law

    assert chi_square(counts, joint(temperature)).p > 1e-4
    assert chi_square(counts, joint(1.5)).p < REJECT_BELOW


@examples
@torch.inference_mode()
def test_rows_of_a_batch_do_not_touch_each_other(example: str, head: SharedHead) -> None:
    drafter = EXAMPLES[example]()
    num_drafts, temperature = most(drafter), torch.tensor([0.0, 1.0, 0.5, 0.0, 2.0])
    noise = uniforms(5, num_drafts)
    together = drafted(drafter, head, slice(5), temperature, noise, num_drafts)
    for row in range(5):
        alone = drafted(drafter, head, slice(row, row + 1), temperature, noise, num_drafts)
        assert torch.equal(alone.tokens[0], together.tokens[row])
        if temperature[row] > 0:
            torch.testing.assert_close(alone.probs[0], together.probs[row])
    hidden, tokens = texts(5)
    greedy = ReferenceDrafter(drafter, head).draft(hidden, tokens[:, 1:], num_drafts).tokens
    assert torch.equal(together.tokens[temperature == 0], greedy[temperature == 0])


@examples
@torch.inference_mode()
def test_fewer_drafts_are_the_first_of_more_and_take_the_first_of_the_noise(example: str, head: SharedHead) -> None:
    drafter, temperature = EXAMPLES[example](), torch.full((5,), 0.8)
    noise = uniforms(5, most(drafter))
    whole = drafted(drafter, head, slice(5), temperature, noise, most(drafter))
    for num_drafts in range(1, most(drafter) + 1):
        draft = drafted(drafter, head, slice(5), temperature, noise, num_drafts)
        assert torch.equal(draft.tokens, whole.tokens[:, :num_drafts])
        torch.testing.assert_close(draft.probs, whole.probs[:, :num_drafts])


@examples
@torch.inference_mode()
def test_a_draft_takes_as_much_noise_as_is_said(example: str, head: SharedHead) -> None:
    """One uniform for each draft; one less is an error."""
    drafter = EXAMPLES[example]()
    hidden, tokens = texts(2)
    for num_drafts in range(1, most(drafter) + 1):
        with pytest.raises((IndexError, RuntimeError)):
            ReferenceDrafter(drafter, head).draft(
                hidden, tokens[:, 1:], num_drafts, torch.ones(2), uniforms(2, num_drafts - 1)
            )


@examples
@torch.inference_mode()
def test_a_tree_of_one_child_a_node_is_the_greedy_chain(example: str, head: SharedHead) -> None:
    drafter, (hidden, tokens) = EXAMPLES[example](), texts(3)
    if drafter.parallel is not None and not drafter.parallel.drafts_trees:
        with pytest.raises(MTPCError, match="cannot draft trees"):
            ReferenceDrafter(drafter, head).draft_tree(hidden, tokens[:, 1:], 1)
        return
    for size in range(1, most(drafter) + 1):
        tree = ReferenceDrafter(drafter, head).draft_tree(hidden, tokens[:, 1:], size, max_children=1)
        chain = ReferenceDrafter(drafter, head).draft(hidden, tokens[:, 1:], size)
        assert torch.equal(tree.tokens, chain.tokens)
        assert tree.parents.tolist() == [list(range(-1, size - 1))] * 3
