"""The figures of a GPU card."""

from __future__ import annotations

import math

from benchmarks.gpu.completed import Completed
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import tokens_per_step
from mtpc.lab.servers.draft_counters import DraftCounters


def test_the_acceptance_length_is_that_of_the_benchmark() -> None:
    """Two outputs of nine tokens, of which eight came in four steps."""
    counted = DraftCounters(drafts=8, draft_tokens=16, accepted=8)
    benchmark = Measurement(2, 18, 1.0, 2.0, 0.1, 0.1, counted, 0.0, ("", ""))
    assert Completed(2, 18, 10, 1.0, 0.1).acceptance_length == tokens_per_step([benchmark]) == 2.0


def test_a_single_token_takes_no_decoding_step() -> None:
    assert math.isnan(Completed(2, 2, 2, 1.0, 0.0).acceptance_length)


def test_the_time_until_first_tokens_is_no_decoding_step() -> None:
    """Eight requests: 0.4 s for the prompts, then five steps of 10 ms, of which 2 ms are drafting."""
    first, whole = Completed(8, 8, 8, 0.4, 0.002), Completed(8, 88, 48, 0.45, 0.012)
    found = whole.after(first)
    assert math.isclose(found.step_ms(8), 10.0) and math.isclose(found.draft_ms(8), 2.0)
    assert found.acceptance_length == whole.acceptance_length == 2.0
