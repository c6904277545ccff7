"""A request with a seed drafts from the same distribution alone as in company: not from the int8 copy for one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from mtpc.methods.drafter import load_drafter
from mtpc.parallel.compiled import drafting_for_one
from vllm_mtpc.v1.proposer import Proposer

SHIPPED = Path(__file__).parents[3] / "weights" / "byte-mtpc-hmm-n8"


@pytest.fixture(scope="module")
def proposer() -> Proposer:
    """As much of one as drafting a window takes, in bfloat16, where the copy for one differs."""
    parallel = load_drafter(SHIPPED, dtype=torch.bfloat16).parallel
    assert parallel is not None
    made = object.__new__(Proposer)
    made.__dict__ |= {
        "parallel": parallel,
        "draft_single": drafting_for_one(parallel),
        "copying": None,
        "drafter_tokens": 7,
    }
    model = SimpleNamespace(split=lambda own: (0, own), with_head_inputs=lambda known, numbers: known)
    made.__dict__ |= {"model": model, "vocabularies": None, "request_states": []}
    made._enable_probabilistic_draft_probs = True
    return made


@torch.inference_mode()
def drafted(proposer: Proposer, rows: int, seeds: dict[int, int]) -> Draft:
    """The draft of as many requests, of which the first is always the same."""
    states = torch.randn(4, 384, generator=torch.Generator().manual_seed(1)).bfloat16()[:rows]
    generators = {row: torch.Generator().manual_seed(seed) for row, seed in seeds.items()}
    sampling: Any = SimpleNamespace(
        all_greedy=False, all_random=True, temperature=torch.ones(rows), generators=generators
    )
    step = proposer._begin(7, states, torch.arange(rows), torch.arange(rows) + 9, sampling)
    return proposer._draft_parallel(step)


def test_alone_as_in_company(proposer: Proposer) -> None:
    alone, in_company = drafted(proposer, 1, {0: 5}), drafted(proposer, 4, {0: 5})
    assert alone.tokens[0].tolist() == in_company.tokens[0].tolist()
    assert alone.probs is not None
    assert in_company.probs is not None
    torch.testing.assert_close(alone.probs[0], in_company.probs[0], rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_one_request_without_a_seed_drafts_with_the_copy_for_one(proposer: Proposer) -> None:
    alone, in_company = drafted(proposer, 1, {}), drafted(proposer, 4, {})
    assert alone.probs is not None
    assert in_company.probs is not None
    assert not torch.allclose(alone.probs[0, 0], in_company.probs[0, 0], rtol=1e-5, atol=1e-7)
