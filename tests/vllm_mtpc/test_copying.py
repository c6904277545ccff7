"""Drafts of the V1 runner as long as they pay: their distributions, with what is copied after the drafter's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft
from vllm_mtpc.copying import RunnerCopying

TOKENS, VOCABULARY = torch.tensor([[1, 2], [3, 4]]), 6
PROBS = torch.rand(2, 2, VOCABULARY, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("drafts", [[[1], []], [[1, 2], [3]], [[1, 2], [3, 4, 5, 0]], [[1, 2, 5], []]])
def test_distributions_are_as_wide_as_the_longest_draft(stated: bool, drafts: list[list[int]]) -> None:
    asked: list[Any] = []

    def lengths(*arguments: Any) -> list[list[int]]:
        asked.append(arguments)
        return drafts

    copying: Any = RunnerCopying.__new__(RunnerCopying)
    copying.device, copying.batch = torch.device("cpu"), SimpleNamespace(lengths=lengths)
    peaks = torch.tensor([[0.5, 0.25], [1.0, 0.75]])
    tokens, probs = copying.lengths(Draft(TOKENS, PROBS if stated else None, peaks), 4, {1: "a generator"})
    ((given, sure, longest, seeded),) = asked
    assert (given, sure.tolist(), longest, seeded) == (TOKENS.tolist(), peaks.tolist(), 4, [False, True])
    assert tokens == drafts
    if not stated:
        assert probs is None
        return
    width = max(map(len, drafts))
    assert probs.shape == (2, width, VOCABULARY)
    assert torch.equal(probs[:, :2], PROBS[:, :width])
    for row, draft in enumerate(drafts):
        for place, token in enumerate(draft[2:], start=2):
            assert probs[row, place].tolist() == [float(other == token) for other in range(VOCABULARY)]
