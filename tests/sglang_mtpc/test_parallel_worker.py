"""SGLang's worker of drafters without an autoregressive part, outside of an engine: what a step drafts and copies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mtpc.draft import Draft, DraftContext, Mode
from mtpc.methods.drafter import load_drafter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.drafting import Drafting, DraftInputs
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps
from tests.sglang_mtpc.stand_ins import Texts, batch_of

OWN = DraftShape(4, 1, 4)


@pytest.mark.parametrize("mode", ["greedy", "mixed", "sampled"])
@pytest.mark.parametrize("copied", [0, 2])
def test_a_step_drafts_what_the_window_does(drafter: Path, mode: Mode, copied: int, verified: list[Draft]) -> None:
    """And goes on with what would be copied, where drafts are copied."""
    parallel = load_drafter(drafter).parallel
    assert parallel is not None
    rows, drafts = 8, OWN.depth + copied
    states = torch.randn(rows, 64)
    batch, _ = batch_of(rows, mode, states)
    made = ParallelWorker.__new__(ParallelWorker)
    made.clock, made.steps, made._target_worker = DraftClock(None), BatchSteps(7), None
    made.lengths, made.shape = Texts(OWN.depth) if copied else None, DraftShape(drafts, 1, drafts)
    made.drafting = Drafting(parallel, OWN, copies=bool(copied))
    made.strategy = made._strategy()
    made._draft(batch)
    ((tokens, probs, _),) = verified

    found = Texts()
    found.begin(batch.reqs)
    texts = found.copied(drafts)
    own = Copied(*(each[:, : OWN.depth] for each in texts)) if copied else None
    known = DraftContext(states[:, None], batch.spec_info.bonus_tokens[:, None])
    expected = made.drafting(DraftInputs.of(known, BatchSteps(7).begin(batch), own), mode)
    assert isinstance(expected, Draft)
    assert torch.equal(tokens[:, : OWN.depth], expected.tokens)
    assert torch.equal(tokens[:, OWN.depth :], texts.tokens[:, OWN.depth : drafts])
    assert (probs is None) == (mode == "greedy")
    if probs is not None and expected.probs is not None:
        assert torch.equal(probs[:, : OWN.depth], expected.probs)
        assert torch.equal(probs[:, OWN.depth :].argmax(2), texts.tokens[:, OWN.depth : drafts])
