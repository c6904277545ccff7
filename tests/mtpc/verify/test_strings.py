"""The rule that asks for q token by token emits the target's distribution: by enumeration, and by chi-square."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square_p_value
from mtpc.verify import verify_greedy
from mtpc.verify.output import residual
from mtpc.verify.rejection import acceptance_ratio
from mtpc.verify.strings import keep_probabilities, verify_strings
from tests.oracles.processes import Process, random_process, sample_paths

SAMPLES = 20_000
EIGHTHS = [  # p and q whose quotients are multiples of 1/8 as well, so that a grid of uniforms meets them exactly
    ((4, 2, 1, 1), (1, 4, 1, 2)),
    ((4, 0, 2, 2), (0, 4, 2, 2)),
    ((1, 1, 4, 2), (0, 0, 8, 0)),
    ((2, 2, 4, 0), (1, 1, 4, 2)),
    ((4, 2, 1, 1), (4, 2, 1, 1)),
]


class Stated:
    """Distributions in full, [B, K, V], which counts what it is asked for."""

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs
        self.asked: list[int] = []
        self.asked_whole = 0

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        self.asked.append(len(rows))
        return self.probs[rows, positions, tokens]

    def all(self, rows: Tensor, positions: Tensor) -> Tensor:
        self.asked_whole += len(rows)
        return self.probs[rows, positions]

    def at(self, drafts: Tensor) -> Tensor:
        """Those of the draft tokens, [B, K]."""
        return self.probs.gather(2, drafts[..., None])[..., 0]


def test_every_uniform_of_a_grid() -> None:
    """The rule's own code, with its uniforms summed out: n = 0 is the plain rule, n = 2 draws, keeps and gives up."""
    for (p, q), steps in product(EIGHTHS, range(3)):
        target, draft = torch.tensor(p) / 8, torch.tensor(q) / 8
        sizes = [4, *[8] * (2 * steps + 2)]
        grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes))
        drafts, uniforms = grid[:, :1], (grid[:, 1:] + 0.5) / 8
        stated = Stated(draft.expand(len(grid), 1, 4))
        last = torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(len(grid), 1, 4)  # after an acceptance, to tell them apart
        both = torch.cat([target.expand(len(grid), 1, 4), last], 1)
        parts = uniforms.split([1, steps + 1, steps], 1)
        result = verify_strings(drafts, stated.at(drafts), stated, both, *parts)
        weight = draft[drafts[:, 0]] / 8 ** (2 * steps + 2)
        emitted = torch.zeros(4).index_add_(0, result.tokens[:, 0], weight)
        assert emitted.tolist() == pytest.approx(target.tolist(), abs=1e-6)
        rate = float((weight * result.accepted).sum())
        assert rate == pytest.approx(float(torch.minimum(target, draft).sum()), abs=1e-6)


def test_the_loop_in_closed_form() -> None:
    """The draws are a geometric series in 1 - TV; with the rest from the residual they emit p, for any n."""
    generator = torch.Generator().manual_seed(0)
    for case in range(40):
        p, q = (torch.rand(9, generator=generator, dtype=torch.float64) ** 3 for _ in range(2))
        if case % 2:
            q[torch.rand(9, generator=generator) < 0.4] = 0.0  # special tokens, and tokens that no text has
        p, q = p / p.sum(), q / q.sum().clamp_min(1e-9) if case != 1 else p / p.sum()
        accepted = q * acceptance_ratio(p, q)
        rejected = float(1 - accepted.sum())
        kept = p * keep_probabilities(p, q)  # by one draw
        distance = float((p - q).abs().sum() / 2)
        assert float(kept.sum()) == pytest.approx(distance, abs=1e-12)
        assert rejected == pytest.approx(distance, abs=1e-12)
        for steps in (0, 1, 2, 7, 500):
            given_up = (1 - distance) ** steps
            series = sum((1 - distance) ** step for step in range(steps))
            last = kept * series + given_up * residual(p, q)
            assert (accepted + rejected * last).tolist() == pytest.approx(p.tolist(), abs=1e-12)
            assert rejected * series <= 1.0 + 1e-12  # draws on average
            assert steps == 0 or rejected * given_up <= 1 / (2.718 * steps)


def emitted(target: Process, drawn_from: Process, claimed: Process, steps: int) -> tuple[Counter, Stated]:
    """Sampled drafts through the rule, completed by samples of the target."""
    drafts = target.length - 1
    paths = sample_paths(drawn_from, SAMPLES, drafts, seed=5)
    generator = torch.Generator().manual_seed(6)
    uniforms = torch.rand(SAMPLES, drafts + 2 * steps + 1, generator=generator, dtype=torch.float64)
    distinct, index = paths.unique(dim=0, return_inverse=True)
    stated = Stated(claimed.along(distinct, drafts)[index])
    probs = target.along(distinct, drafts + 1)[index]
    parts = uniforms.split([drafts, steps + 1, steps], 1)
    result = verify_strings(paths, stated.at(paths), stated, probs, *parts)
    counts: Counter[tuple[int, ...]] = Counter()
    for tokens, accepted in zip(result.tokens.tolist(), result.accepted.tolist(), strict=True):
        x = tuple(tokens[: accepted + 1])
        while len(x) < target.length:
            x = (*x, int(torch.multinomial(target.conditionals[x], 1, generator=generator)))
        counts[x] += 1
    return counts, stated


def test_samples_follow_the_target() -> None:
    for zeros, steps in product((False, True), (0, 1, 32)):
        target, draft = random_process(3, 4, 0, zeros), random_process(3, 3, 1, zeros)
        counts, stated = emitted(target, draft, draft, steps)
        assert chi_square_p_value(counts, target.joint()) > 1e-4
        assert sum(stated.asked) < 3 * SAMPLES  # one draw a position on average
        assert stated.asked_whole < 3 * SAMPLES / (2.718 * steps) if steps else stated.asked_whole > SAMPLES / 5


def test_control_a_drafter_that_misstates_q_is_rejected() -> None:
    target, draft, claimed = random_process(3, 4, 0), random_process(3, 3, 1), random_process(3, 3, 2)
    for steps in (0, 32):
        counts, _ = emitted(target, draft, claimed, steps)
        assert chi_square_p_value(counts, target.joint()) < REJECT_BELOW


def test_control_a_loop_that_misstates_q_is_rejected() -> None:
    """The draft token's own q is right, and only those of the tokens drawn after a rejection are another's."""
    target, draft, other = random_process(3, 2, 5), random_process(3, 1, 4), random_process(3, 1, 0)
    paths = sample_paths(draft, SAMPLES, 1, seed=5)
    uniforms = torch.rand(SAMPLES, 66, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    right, wrong = (Stated(each.along(paths, 1)) for each in (draft, other))
    p = {(token,): float(each) for token, each in enumerate(target.conditionals[()])}
    for drafter, honest in ((right, True), (wrong, False)):
        parts = uniforms.split([1, 33, 32], 1)
        result = verify_strings(paths, right.at(paths), drafter, target.along(paths, 2), *parts)
        value = chi_square_p_value(Counter((token,) for token in result.tokens[:, 0].tolist()), p)
        assert value > 1e-4 if honest else value < REJECT_BELOW


def test_one_hot_target_and_draft_reduce_to_the_greedy_match() -> None:
    generator = torch.Generator().manual_seed(0)
    drafts = torch.randint(3, (200, 4), generator=generator)
    best = torch.where(torch.rand(200, 5, generator=generator) < 0.3, 0, torch.nn.functional.pad(drafts, (0, 1)))
    target = torch.nn.functional.one_hot(best, 3).float()
    stated = Stated(torch.nn.functional.one_hot(drafts, 3).double())
    expected = verify_greedy(drafts, target)
    for uniforms in (torch.zeros(200, 9), torch.full((200, 9), 1 - 2.0**-24), torch.rand(200, 9, generator=generator)):
        result = verify_strings(drafts, stated.at(drafts), stated, target, *uniforms.split([4, 3, 2], 1))
        assert torch.equal(result.tokens, expected.tokens)
        assert torch.equal(result.accepted, expected.accepted)
    assert stated.asked_whole == 0


def test_without_drafts_the_target_is_sampled() -> None:
    target = torch.tensor([[[0.25, 0.0, 0.75]]])
    stated = Stated(torch.empty(1, 0, 3))
    empty = torch.empty(1, 0, dtype=torch.int64)
    for uniform, token in ((0.2, 0), (0.3, 2)):
        draws = torch.tensor([[uniform, 0.0]])
        result = verify_strings(empty, torch.empty(1, 0), stated, target, torch.empty(1, 0), draws, torch.zeros(1, 1))
        assert result.tokens.tolist() == [[token]]
    assert not stated.asked
