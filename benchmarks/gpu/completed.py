"""What an engine did in one measurement of a card, and what a card asks of any engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple, Protocol

from mtpc.lab.servers.draft_times import read_draft_times
from mtpc.metrics.draft_clock import WRITE_EVERY


class Completed(NamedTuple):
    """Some requests, a fixed number at a time, that all ran to the same length.

    tokens: generated.  steps: target forward passes, summed over the requests.  drafting: seconds inside drafting
    calls, where they are timed.
    """

    tokens: int
    steps: int
    seconds: float
    drafting: float

    @property
    def acceptance_length(self) -> float:
        """Mean tokens of a request per target forward pass, bonus token included."""
        return self.tokens / self.steps

    def step_ms(self, concurrency: int) -> float:
        """Milliseconds of one pass of so many requests, drafts included; they are a multiple of ``concurrency``."""
        return 1e3 * self.seconds * concurrency / self.steps

    def draft_ms(self, concurrency: int) -> float:
        """Of these, milliseconds of drafting."""
        return 1e3 * self.drafting * concurrency / self.steps


class Engine(Protocol):
    """An engine with one target and one drafter, or none."""

    def complete(self, prompts: list[list[int]], concurrency: int, temperature: float, tokens: int) -> Completed:
        """So many prompts at a time, so many tokens after each, whatever the model says in them."""


def seconds_of_drafting(times: Path) -> float:
    """Inside drafting calls so far, from the file of a running engine's draft times."""
    if times.exists():
        time.sleep(WRITE_EVERY)  # until all is written
    return read_draft_times(times).seconds
