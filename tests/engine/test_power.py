"""What the engine tests' chi-square test finds out, and what it does not: the law of drafters that misstate a little.

A drafter draws from its distribution and states that of another temperature.  What is then emitted is known exactly for
the random models of the engine tests, and with it the power of 3000 windows: without an engine, in seconds.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.draw import draw
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from mtpc.methods.drafter import load_drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.verify import verify_rejection
from tests.engine.conftest import Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.oracles import circuit_ops
from tests.support.power import power_against

PROMPT, SAMPLES = list(b"It was the best of "), 3000  # those of `test_draft_methods`, with either engine
T1 = Sampling()


class Misstated:
    """Speculative decoding of the prompt with a window that states its distribution at another temperature."""

    def __init__(self, models: Models, stated: float) -> None:
        parallel = load_drafter(models.drafter).parallel
        assert isinstance(parallel, CircuitPart)
        self.target, self.parallel, self.stated = Reference(models.target), parallel, stated

    def states(self, texts: Tensor | list[list[int]]) -> Tensor:
        """What the drafter reads after equally long texts: the target's state before their last token, [B, d]."""
        read = self.target.model.model(input_ids=torch.as_tensor(texts), use_cache=False)
        states: Tensor = read.last_hidden_state[:, -2]
        return states

    def stated_probs(self, q: Tensor) -> Tensor:
        """q^(1/T), normalised."""
        powers = q.double() ** (1 / self.stated)
        return powers / powers.sum(-1, keepdim=True)

    def emitted(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Of each token, [V]: that it is drafted and accepted, and that it replaces a draft that was rejected."""
        accepted = q * (p / self.stated_probs(q)).clamp_max(1.0)
        rest = (p - self.stated_probs(q)).clamp_min(0.0)
        rest = rest / rest.sum() if rest.sum() > 0 else p
        return accepted, (1 - accepted.sum()).clamp_min(0.0) * rest

    @torch.inference_mode()
    def law(self, table: dict[Window, float]) -> dict[Window, float]:
        """The probability of each cell of `cells` in what is emitted, with at least two drafts a step."""
        starts = {key[:length] for key in table for length in range(len(key))}
        p = {start: self.target.next_probs([PROMPT + list(start)], T1)[0] for start in starts}
        q = {start: self.drafted(start) for start in starts if start}
        second = {start: self.drafted(start[:1], start[1]) for start in starts if len(start) == 2}

        def joint(key: Window) -> float:
            found = float(p[()][key[0]]) if key else 1.0
            if len(key) < 2:
                return found
            accepted, replaced = self.emitted(p[key[:1]], q[key[:1]])
            if len(key) == 2:
                return found * float((accepted + replaced)[key[1]])
            goes_on, begins = (sum(self.emitted(p[key[:2]], of[key[:2]])) for of in (second, q))
            return found * float(accepted[key[1]] * goes_on[key[2]] + replaced[key[1]] * begins[key[2]])

        law: dict[Window, float] = {}
        for key in sorted(table, key=len, reverse=True):  # a shorter one is what no longer one begins with
            law[key] = joint(key) - sum(mass for longer, mass in law.items() if longer[: len(key)] == key)
        return law

    def drafted(self, emitted: Window, *before: int) -> Tensor:
        """Return the drafter's distribution after the emitted tokens and the draft tokens before, float64 [V]."""
        x = torch.tensor([[emitted[-1], *before, *[0] * (self.parallel.config.circuit_window - 1 - len(before))]])
        params = self.parallel.head(self.states([PROMPT + list(emitted)]), x[:, 0])
        return circuit_ops.conditionals(self.parallel.circuit, params, x)[0, 1 + len(before)].exp().double()

    @torch.inference_mode()
    def windows(self) -> list[Window]:
        """As many as the engine tests sample, by the project's own verification."""
        (first,) = self.target.next_probs([PROMPT], T1)
        emitted = draw(first.expand(SAMPLES, -1), torch.rand(SAMPLES).double())[:, None]
        emitted = torch.cat([emitted, self.step(emitted)], 1)
        short = emitted[:, 2] < 0
        emitted[short, 2] = self.step(emitted[short, :2])[:, 0]
        return [tuple(row[:LENGTH]) for row in emitted.tolist()]

    def step(self, emitted: Tensor) -> Tensor:
        """What a step of two drafts emits after each text, int64 [B, 3]."""
        texts = torch.cat([torch.tensor(PROMPT).expand(len(emitted), -1), emitted], 1)
        states = torch.cat([self.states(part) for part in texts.split(256)])
        ones, noise = torch.ones(len(emitted)), torch.rand(len(emitted), 2, dtype=torch.float64)
        draft = self.parallel.draft(DraftContext.of_target(states, emitted[:, -1]), ones, noise, 2, "sampled")
        assert draft.probs is not None
        drafted = torch.cat([texts, draft.tokens], 1)
        ends = range(texts.shape[1], drafted.shape[1] + 1)
        p = torch.stack([self.target.next_probs(drafted[:, :end].tolist(), T1) for end in ends], 1)
        uniforms = torch.rand(len(emitted), 3).double()
        return verify_rejection(draft.tokens, self.stated_probs(draft.probs), p, uniforms[:, :2], uniforms[:, 2]).tokens


def test_what_3000_windows_find_out_and_what_they_do_not(random_models: Models) -> None:
    """Twice the temperature and half of it, and not a tenth more: that takes some 120,000 windows."""
    honest = Misstated(random_models, 1.0)
    table = cells(honest.target, PROMPT, T1, SAMPLES)
    assert honest.law(table) == pytest.approx(table, abs=1e-6)
    for stated in (2.0, 0.5):
        assert power_against(table, Misstated(random_models, stated).law(table), SAMPLES, REJECT_BELOW) > 0.98
    little = Misstated(random_models, 1.1).law(table)
    assert power_against(table, little, SAMPLES, REJECT_BELOW) < 0.001
    assert power_against(table, little, 30_000, REJECT_BELOW) < 0.1
    assert power_against(table, little, 130_000, REJECT_BELOW) > 0.98


@pytest.mark.parametrize(
    ("stated", "found"), [pytest.param(1.0, False, marks=pytest.mark.thorough), (1.1, False), (2.0, True)]
)
def test_the_verification_has_that_law(random_models: Models, stated: float, found: bool) -> None:
    """Windows fit the distribution computed for the misstatement; a large misstatement fails the target's."""
    misstated = Misstated(random_models, stated)
    table, windows = cells(misstated.target, PROMPT, T1, SAMPLES), misstated.windows()
    assert p_value(windows, misstated.law(table)) > REJECT_BELOW
    assert (p_value(windows, table) < REJECT_BELOW) == found
