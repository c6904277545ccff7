"""Row: what is drawn on the device is what is stated, also where products are rounded; and the law of a draw."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.draw import draw
from tests.gpu.running import Run
from tests.support.tiny_models import make_part

VOCABULARY, ON_CPU, ROWS, DRAFTS = 49_152, 300, 16, 3
LAW = 152_000  # tokens
CIRCUITS = ("ff", "cp", "hmm", "btree")


def law_error(probs: Tensor, count: int = 24) -> float:
    """Total variation of what is drawn over all uniforms and what is stated, [V], estimated.

    From the intervals of some tokens, found by bisection.
    """
    generator, size, device = torch.Generator().manual_seed(2), len(probs), probs.device
    ends = probs.double().cumsum(-1) / probs.double().sum()
    asked = torch.randint(1, size, (count,), generator=generator).to(device)
    begins = []
    for first in (asked, asked + 1):  # the smallest uniform that draws this token or a later one
        low, high = ends[first - 1] - 1e-12, ends[first - 1] + 1e-12
        for _ in range(14):
            middle = (low + high) / 2
            below = draw(probs.expand(count, -1), middle) < first
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        begins.append(high)
    error = (begins[1] - begins[0] - probs[asked].double() / probs.double().sum()).abs().mean()
    return size * float(error) / 2


@torch.inference_mode()
def drawn_is_stated(run: Run) -> str:
    """Under the precision of products that is the default, and under the one that rounds the most."""
    device, off, apart = run.device, 0.0, 0.0
    vocabulary = VOCABULARY if run.on_gpu else ON_CPU
    for circuit in CIRCUITS:
        torch.manual_seed(0)
        parallel = make_part(circuit, DRAFTS + 1, 8, 64, vocabulary).to(device)
        states, token = torch.randn(ROWS, 64).to(device), torch.randint(vocabulary, (ROWS,)).to(device)
        noise, ones = torch.rand(ROWS, DRAFTS, dtype=torch.float64).to(device), torch.ones(ROWS, device=device)
        stated = []
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision(precision)
            try:
                draft = parallel.draft(DraftContext.of_target(states, token), ones, noise, DRAFTS, "sampled")
            finally:
                torch.set_float32_matmul_precision("highest")
            assert draft.probs is not None
            assert torch.equal(draft.tokens, draw(draft.probs, noise)), f"{circuit}, {precision}: drawn from other rows"
            off = max(off, float((draft.probs.double().sum(-1) - 1).abs().max()))
            stated.append(draft.probs[:, 0])
        apart = max(apart, float((stated[0] - stated[1]).abs().sum(-1).max()))
    assert off < 1e-6, f"rows sum to 1 but for {off:.1e}"
    assert apart > 1e-4 or not run.on_gpu, "the control: no product was rounded"
    probs = (3.0 * torch.randn(LAW, generator=torch.Generator().manual_seed(1))).to(device).softmax(-1)
    error = law_error(probs)
    assert error < 1e-9, f"total variation {error:.1e} at {LAW} tokens"
    return f"sums are 1 but for {off:.0e}; rounding moves rows by {apart:.0e}; TV {error:.0e} at {LAW} tokens"
