"""The fix for seeded requests: a generator serves its request's own tokens, and none that are discarded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_mtpc.cpu.seeds import _can_set_offset, _without_discarded_generators


def runner(discarded: list[bool]) -> Any:
    """Two seeded requests, in rows 0 and 2."""
    generators = {row: torch.Generator().manual_seed(row) for row in (0, 2)}
    return SimpleNamespace(
        input_batch=SimpleNamespace(generators=generators),
        discard_request_mask=SimpleNamespace(np=np.array(discarded)),
    )


def test_discarded_rows_are_sampled_without_their_generators() -> None:
    seen = []

    def original(self: Any, grammar: Any) -> Any:
        seen.append(sorted(self.input_batch.generators))
        return grammar

    one = runner([True, True, False])
    kept = dict(one.input_batch.generators)
    assert _without_discarded_generators(original)(one, "grammar") == "grammar"
    assert seen == [[2]]
    assert one.input_batch.generators == kept


def test_generators_come_back_after_an_error() -> None:
    def original(self: Any, grammar: Any) -> Any:
        raise ValueError("an error of vLLM's")

    one = runner([False, False, True])
    with pytest.raises(ValueError, match="an error of vLLM's"):
        _without_discarded_generators(original)(one, None)
    assert sorted(one.input_batch.generators) == [0, 2]


def test_a_generator_of_a_cpu_cannot_be_wound_back() -> None:
    assert not _can_set_offset()  # once it can, the fix is no longer applied and can be removed
