"""Both sampling rules emit exactly the target's distribution: by enumeration, and by chi-square over samples."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.verify import verify_rejection
from tests.mtpc.verify.rules import RULES
from tests.oracles.block_verification import verify_block
from tests.oracles.processes import Process, emitted_joint, random_process, sample_paths

VERIFY = {"rejection": verify_rejection, "block": verify_block}
SIZES = [(2, 0), (2, 1), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2)]  # (V, K)
SAMPLES = 20_000


def distance(a: dict[tuple[int, ...], float], b: dict[tuple[int, ...], float]) -> float:
    """Total variation."""
    return sum(abs(a[x] - b[x]) for x in a) / 2


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("vocabulary", "drafts"), SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_emitted_distribution_is_the_target(rule: str, vocabulary: int, drafts: int, seed: int, zeros: bool) -> None:
    target = random_process(vocabulary, drafts + 1, seed, zeros)
    draft = random_process(vocabulary, max(drafts, 1), seed + 100, zeros)
    assert distance(emitted_joint(RULES[rule], target, draft, draft), target.joint()) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_draft_equal_to_the_target(rule: str) -> None:
    """Everything is accepted, and the quotients 0 / 0 on the way do no harm."""
    target = random_process(3, 4, 0)
    assert distance(emitted_joint(RULES[rule], target, target, target), target.joint()) < 1e-12
    paths = sample_paths(target, 50, 3, seed=0)
    accepted, _ = RULES[rule](paths, target.along(paths, 3), target.along(paths, 4))
    assert (accepted[:, -1] == 1.0).all()


@pytest.mark.parametrize("rule", RULES)
def test_one_hot_drafts(rule: str) -> None:
    """Deterministic drafts (a greedy draft for a sampled request) are lossless with their one-hot distribution."""
    target, draft = random_process(3, 4, 0), random_process(3, 3, 1)
    one_hot = {x: torch.nn.functional.one_hot(q.argmax(), 3).double() for x, q in draft.conditionals.items()}
    certain = Process(3, 3, one_hot)
    assert distance(emitted_joint(RULES[rule], target, certain, certain), target.joint()) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_control_a_wrong_draft_distribution_is_not_lossless(rule: str) -> None:
    target, draft, claimed = random_process(3, 3, 0), random_process(3, 2, 1), random_process(3, 2, 2)
    assert distance(emitted_joint(RULES[rule], target, draft, claimed), target.joint()) > 0.02


def emitted(rule: str, target: Process, draft: Process, claimed: Process) -> Counter[tuple[int, ...]]:
    """Sampled drafts through the rule, completed by samples of the target."""
    drafts = target.length - 1
    paths = sample_paths(draft, SAMPLES, drafts, seed=5)
    generator = torch.Generator().manual_seed(6)
    uniforms = torch.rand(SAMPLES, drafts + 1, generator=generator)
    distinct, index = paths.unique(dim=0, return_inverse=True)
    verdict = VERIFY[rule](
        paths,
        claimed.along(distinct, drafts)[index],
        target.along(distinct, drafts + 1)[index],
        uniforms[:, :-1],
        uniforms[:, -1],
    )
    counts: Counter[tuple[int, ...]] = Counter()
    for tokens, accepted in zip(verdict.tokens.tolist(), verdict.accepted.tolist(), strict=True):
        x = tuple(tokens[: accepted + 1])
        while len(x) < target.length:
            x = (*x, int(torch.multinomial(target.conditionals[x], 1, generator=generator)))
        counts[x] += 1
    return counts


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_samples_follow_the_target(rule: str, zeros: bool) -> None:
    target, draft = random_process(3, 4, 0, zeros), random_process(3, 3, 1, zeros)
    assert chi_square(emitted(rule, target, draft, draft), target.joint()).p > 1e-4


@pytest.mark.parametrize("rule", RULES)
def test_control_samples_with_a_wrong_draft_distribution_are_rejected(rule: str) -> None:
    target, draft, claimed = random_process(3, 4, 0), random_process(3, 3, 1), random_process(3, 3, 2)
    assert chi_square(emitted(rule, target, draft, claimed), target.joint()).p < REJECT_BELOW


@pytest.mark.parametrize("seed", range(5))
def test_block_verification_accepts_more(seed: int) -> None:
    """Sun et al. 2024: strictly more for two or more generic drafts, as many for one."""
    for drafts in (1, 2, 3):
        target, draft = random_process(3, drafts + 1, seed), random_process(3, drafts, seed + 100)
        paths = sample_paths(draft, 400, drafts, seed=0).unique(dim=0)
        weight = torch.tensor([draft.probability(tuple(x)) for x in paths.tolist()], dtype=torch.float64)
        count = torch.arange(drafts + 1, dtype=torch.float64)
        mean = {
            name: (weight * (rule(paths, draft.along(paths, drafts), target.along(paths, drafts + 1))[0] @ count)).sum()
            for name, rule in RULES.items()
        }
        assert mean["block"] > mean["rejection"] - 1e-12
        assert drafts == 1 or mean["block"] > mean["rejection"] + 1e-6
