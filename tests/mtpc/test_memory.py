"""Draft memory at start-up: the message, and the refusal of a batch that cannot fit."""

from __future__ import annotations

import pytest

from mtpc.errors import MTPCError
from mtpc.memory import check_batch_memory


def test_the_memory_of_the_largest_batch_is_said() -> None:
    message = check_batch_memory(256, 7, 152_000)
    assert message == "drafting 7 tokens from 152000 for 256 requests at a time takes up to 3,268.6 MB"


@pytest.mark.parametrize(
    ("batch", "autoregressive", "expected"),
    [(8, False, "107.1"), (256, False, "810.3"), (1024, False, "810.3"), (256, True, "810.3"), (1024, True, "1,872.8")],
)
def test_with_kept_distributions_a_batch_is_drafted_in_parts(batch: int, autoregressive: bool, expected: str) -> None:
    message = check_batch_memory(batch, 7, 152_000, kept=5_000_000, autoregressive=autoregressive)
    assert message.endswith(f"for {batch} requests at a time takes up to {expected} MB")


def test_a_batch_that_cannot_fit_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        MTPCError, match=r"GiB of memory, but this machine has .* GiB; lower the engine's limit of concurrent requests"
    ):
        check_batch_memory(1_000_000, 7, 152_000)
