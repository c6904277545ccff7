"""Speculative decoding with the real loop: with a drafter of whatever draft method, the text is the target's own."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mtpc.draft import Draft
from mtpc.lab.evaluation.decoding import cut_after_end, speculate
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.generation import generate
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.evaluation.drafters import SCORED, tiny_drafter
from tests.support.often import each_of
from tests.support.tiny_models import VOCAB, make_target

DRAFTS = 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


@pytest.fixture(scope="module", params=each_of(SCORED, ("mtpc", "fastmtp", "hybrid")))
def drafter(target: FrozenTarget, request: pytest.FixtureRequest) -> Drafter:
    """Of every draft method, now and then right."""
    return tiny_drafter(request.param, target.model)


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(VOCAB, (4 + i % 3,), generator=generator).tolist() for i in range(count)]


def test_greedy_text_is_the_targets_whatever_the_drafter(target: FrozenTarget, drafter: Drafter) -> None:
    whole, asked = SharedHead.of(target.model), prompts(6)
    expected = generate(target, asked, 40, 0.0)
    for head in (whole, whole.restricted(torch.arange(0, VOCAB, 2))):
        for prompt, text in zip(asked, expected, strict=True):
            assert speculate(target, drafter, head, prompt, 40, DRAFTS).tokens == text[len(prompt) :]


def test_it_ends_where_the_target_ends(target: FrozenTarget, drafter: Drafter) -> None:
    prompt = prompts(1)[0]
    free = generate(target, [prompt], 40, 0.0)[0][len(prompt) :]
    first = max(set(free), key=free.index)
    for ends in ({first}, {first, max(free)}, frozenset((first, VOCAB + 1))):
        last = min(free.index(end) for end in ends if end in free)
        decoded = speculate(target, drafter, SharedHead.of(target.model), prompt, 40, DRAFTS, end_tokens=ends)
        assert decoded.tokens == free[: last + 1]
        assert generate(target, [prompt], 40, 0.0, ends)[0] == prompt + decoded.tokens


def test_an_end_within_an_accepted_block_ends_the_text(
    target: FrozenTarget, drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted tokens after the end token are dropped.  Here the drafter drafts the target's own output."""
    prompt = prompts(1)[0]
    free = generate(target, [prompt], 40, 0.0)[0][len(prompt) :]
    emitted = 0

    def foresee(self: ReferenceDrafter, *args: object) -> Draft:
        nonlocal emitted
        emitted += DRAFTS + 1
        return Draft(torch.tensor([free[emitted - DRAFTS : emitted]]), None)

    monkeypatch.setattr(ReferenceDrafter, "draft", foresee)
    ends = {free[i] for i in range(2, 30) if (i - 1) % (DRAFTS + 1) < DRAFTS - 1 and free[i] not in free[:i]}
    assert ends
    for end in ends:
        emitted = 0
        decoded = speculate(target, drafter, SharedHead.of(target.model), prompt, 40, DRAFTS, end_tokens={end})
        assert decoded.tokens == free[: free.index(end) + 1]
        assert decoded.accepted == [DRAFTS] * len(decoded.accepted)


def test_a_text_ends_with_the_first_of_several_ends() -> None:
    assert cut_after_end([5, 6, 7, 8], (8, 6)) == [5, 6]
    assert cut_after_end([5, 6], (8,)) == [5, 6]
    assert cut_after_end([5, 6], ()) == [5, 6]


def exact_law(target: FrozenTarget, prompt: list[int], temperature: float) -> dict[tuple[int, int, int], float]:
    """The target's own distribution of the next three tokens."""

    def following(texts: list[list[int]]) -> torch.Tensor:
        return (target.features(torch.tensor(texts)).logits[:, -1] / temperature).softmax(-1).double()

    tokens = range(VOCAB)
    first = following([prompt])[0]
    second = following([[*prompt, i] for i in tokens])
    third = following([[*prompt, i, j] for i in tokens for j in tokens]).view(VOCAB, VOCAB, VOCAB)
    joint = first[:, None, None] * second[:, :, None] * third
    return {(i, j, k): float(joint[i, j, k]) for i in tokens for j in tokens for k in tokens}


@pytest.mark.parametrize("drafter", ["hybrid"], indirect=True)  # it has both parts within three tokens
def test_sampled_text_is_distributed_as_the_targets(target: FrozenTarget, drafter: Drafter) -> None:
    head = SharedHead.of(target.model).restricted(torch.arange(0, VOCAB, 2))
    prompt, generator = prompts(1)[0], torch.Generator().manual_seed(0)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(800):
        found = speculate(target, drafter, head, prompt, 3, 2, temperature=0.8, generator=generator)
        counts[tuple(found.tokens)] += 1
    assert chi_square(counts, exact_law(target, prompt, 0.8)).p > REJECT_BELOW
    assert chi_square(counts, exact_law(target, prompt, 1.0)).p < REJECT_BELOW
