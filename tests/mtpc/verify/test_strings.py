"""The rule that asks for q token by token emits what the rule with q of all tokens emits, and so the target's."""

from __future__ import annotations

from collections import Counter
from itertools import product

import torch
from torch import Tensor

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.verify import verify_greedy, verify_rejection
from mtpc.verify.rejection import last_token_probabilities
from mtpc.verify.strings import verify_strings
from tests.oracles.processes import Process, random_process, sample_paths

SAMPLES = 20_000


class Stated:
    """Distributions in full, [B, K, V], which counts what it is asked for."""

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs
        self.asked: Counter[tuple[int, int, int]] = Counter()

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        assert len(rows.unique()) == len(rows)
        self.asked.update(zip(rows.tolist(), positions.tolist(), tokens.tolist(), strict=True))
        return self.probs[rows, positions, tokens].double()

    def at(self, drafts: Tensor) -> Tensor:
        """Those of the draft tokens, [B, K]."""
        return self.probs.gather(2, drafts[..., None])[..., 0]


def random_probs(generator: torch.Generator, *shape: int) -> Tensor:
    """Some likely tokens, many unlikely ones, and some that never occur."""
    weights = torch.rand(*shape, generator=generator, dtype=torch.float64) ** 6
    weights[torch.rand(*shape, generator=generator) < 0.2] = 0.0
    weights[..., 0] += 1e-3
    return weights / weights.sum(-1, keepdim=True)


def test_it_emits_what_the_race_with_all_q_emits() -> None:
    """Token by token the same, with q of few tokens: none twice, and on average of one per verified position."""
    generator = torch.Generator().manual_seed(0)
    for drafts, size in product((1, 3), (2, 9, 300)):
        target, draft = random_probs(generator, 500, drafts + 1, size), random_probs(generator, 500, drafts, size)
        draft = torch.where(torch.rand(500, 1, 1, generator=generator) < 0.5, draft, target[:, :-1] * 0.9 + draft * 0.1)
        tokens = torch.multinomial(draft.flatten(0, 1), 1, generator=generator).view(500, drafts)
        uniforms, last = (torch.rand(500, width, generator=generator, dtype=torch.float64) for width in (drafts, size))
        stated = Stated(draft)
        result = verify_strings(tokens, stated.at(tokens), stated, target, uniforms, last)
        dense = verify_rejection(tokens, draft, target, uniforms, torch.zeros(500))
        assert torch.equal(result.accepted, dense.accepted)
        assert 0 < (result.accepted < drafts).sum() < 500
        race = last_token_probabilities(draft, target, result.accepted) / -torch.log1p(-last)
        emitted = result.tokens.gather(1, result.accepted[:, None])[:, 0]
        assert torch.equal(emitted, race.argmax(1))
        assert max(stated.asked.values()) == 1
        assert len(stated.asked) < 1.2 * (result.accepted + 1).clamp_max(drafts).sum()
        assert all(
            position == result.accepted[row] and token != tokens[row, position] for row, position, token in stated.asked
        )


def emitted(target: Process, drawn_from: Process, claimed: Process) -> Counter[tuple[int, ...]]:
    """Sampled drafts through the rule, completed by samples of the target."""
    drafts = target.length - 1
    paths = sample_paths(drawn_from, SAMPLES, drafts, seed=5)
    generator = torch.Generator().manual_seed(6)
    uniforms = torch.rand(SAMPLES, drafts + target.vocabulary, generator=generator, dtype=torch.float64)
    distinct, index = paths.unique(dim=0, return_inverse=True)
    stated = Stated(claimed.along(distinct, drafts)[index])
    probs = target.along(distinct, drafts + 1)[index]
    result = verify_strings(paths, stated.at(paths), stated, probs, *uniforms.split([drafts, target.vocabulary], 1))
    counts: Counter[tuple[int, ...]] = Counter()
    for tokens, accepted in zip(result.tokens.tolist(), result.accepted.tolist(), strict=True):
        x = tuple(tokens[: accepted + 1])
        while len(x) < target.length:
            x = (*x, int(torch.multinomial(target.conditionals[x], 1, generator=generator)))
        counts[x] += 1
    return counts


def test_samples_follow_the_target() -> None:
    for zeros in (False, True):
        target, draft = random_process(3, 4, 0, zeros), random_process(3, 3, 1, zeros)
        assert chi_square(emitted(target, draft, draft), target.joint()).p > 1e-4


def test_control_a_drafter_that_misstates_q_is_rejected() -> None:
    target, draft, claimed = random_process(3, 4, 0), random_process(3, 3, 1), random_process(3, 3, 2)
    assert chi_square(emitted(target, draft, claimed), target.joint()).p < REJECT_BELOW


def test_control_a_race_that_misstates_q_is_rejected() -> None:
    """The draft token's own q is right, and only those of the tokens tried after a rejection are another's."""
    target, draft, other = random_process(3, 2, 5), random_process(3, 1, 4), random_process(3, 1, 0)
    paths = sample_paths(draft, SAMPLES, 1, seed=5)
    uniforms = torch.rand(SAMPLES, 4, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    right, wrong = (Stated(each.along(paths, 1)) for each in (draft, other))
    p = {(token,): float(each) for token, each in enumerate(target.conditionals[()])}
    for drafter, honest in ((right, True), (wrong, False)):
        result = verify_strings(paths, right.at(paths), drafter, target.along(paths, 2), *uniforms.split([1, 3], 1))
        value = chi_square(Counter((token,) for token in result.tokens[:, 0].tolist()), p).p
        assert value > 1e-4 if honest else value < REJECT_BELOW


def test_one_hot_target_and_draft_reduce_to_the_greedy_match() -> None:
    generator = torch.Generator().manual_seed(0)
    drafts = torch.randint(3, (200, 4), generator=generator)
    best = torch.where(torch.rand(200, 5, generator=generator) < 0.3, 0, torch.nn.functional.pad(drafts, (0, 1)))
    target = torch.nn.functional.one_hot(best, 3).float()
    stated = Stated(torch.nn.functional.one_hot(drafts, 3).double())
    expected = verify_greedy(drafts, target)
    for uniforms in (torch.zeros(200, 7), torch.full((200, 7), 1 - 2.0**-24), torch.rand(200, 7, generator=generator)):
        result = verify_strings(drafts, stated.at(drafts), stated, target, *uniforms.split([4, 3], 1))
        assert torch.equal(result.tokens, expected.tokens)
        assert torch.equal(result.accepted, expected.accepted)


def test_without_drafts_the_target_is_sampled() -> None:
    target = torch.tensor([[[0.25, 0.0, 0.75]]])
    stated = Stated(torch.empty(1, 0, 3))
    empty = torch.empty(1, 0, dtype=torch.int64)
    for uniforms, token in (([0.1, 0.0, 0.9], 0), ([0.5, 0.0, 0.5], 2)):
        result = verify_strings(empty, torch.empty(1, 0), stated, target, torch.empty(1, 0), torch.tensor([uniforms]))
        assert result.tokens.tolist() == [[token]]
    assert not stated.asked


def test_where_rounding_leaves_no_residual_the_target_is_sampled() -> None:
    target = torch.tensor([[[0.5, 0.25, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]]]).repeat(100, 1, 1)
    stated = Stated(target[:, :1])
    drafts = torch.zeros(100, 1, dtype=torch.int64)
    uniforms = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    above = torch.full((100, 1), 0.75)  # as if rounded up
    result = verify_strings(drafts, above, stated, target, torch.full((100, 1), 0.9), uniforms)
    assert result.accepted.tolist() == [0] * 100
    assert {*result.tokens[:, 0].tolist()} == {0, 1, 3}
