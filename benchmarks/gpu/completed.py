"""Results of one measurement of a GPU card, and the interface of the engines that it measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mtpc.lab.servers.draft_times import read_draft_times
from mtpc.metrics.draft_clock import WRITE_EVERY

FEW = 3  # tokens that take a drafting call


class Completed(NamedTuple):
    """Result of requests at a fixed concurrency.

    Attributes:
        requests: Number of requests.
        tokens: Generated tokens.
        steps: Target forward passes that generated them, summed over the requests.
        seconds: Wall time.
        drafting: Seconds inside drafting calls; 0 if they are not timed.
    """

    requests: int
    tokens: int
    steps: int
    seconds: float
    drafting: float

    @property
    def acceptance_length(self) -> float:
        """Mean tokens of a request per target forward pass, bonus token included; NaN without a decoding step.

        The first token of a request is left out, because it comes from the prompt, as in
        `mtpc.lab.bench.results.tokens_per_step`.
        """
        steps = self.steps - self.requests
        return (self.tokens - self.requests) / steps if steps else float("nan")

    def after(self, first: Completed) -> Completed:
        """Return what followed the first tokens, which come from the prompts.

        Args:
            first: Result of the same requests with outputs of one token.
        """
        return Completed(
            requests=0,
            tokens=self.tokens - first.tokens,
            steps=self.steps - first.steps,
            seconds=self.seconds - first.seconds,
            drafting=self.drafting - first.drafting,
        )

    def step_ms(self, concurrency: int) -> float:
        """Return the milliseconds of a decoding step, drafting included, where all outputs have the same length.

        Args:
            concurrency: Number of concurrent requests; the number of all requests is a multiple of it.
        """
        return 1e3 * self.seconds * concurrency / self.steps

    def draft_ms(self, concurrency: int) -> float:
        """Return the milliseconds of drafting in a decoding step, see `step_ms`."""
        return 1e3 * self.drafting * concurrency / self.steps


class Engine(Protocol):
    """An engine with one target and one drafter, or none."""

    def complete(
        self, prompts: list[list[int]], concurrency: int, temperature: float, lengths: Sequence[int]
    ) -> Completed:
        """Generate after each prompt, without stopping at end tokens.

        Args:
            prompts: Token ids of the prompts.
            concurrency: Number of concurrent requests.
            temperature: Sampling temperature; 0 is greedy.
            lengths: Number of tokens after each prompt.
        """


def seconds_of_drafting(times: Path, draft: Callable[[], object]) -> float:
    """Return the seconds inside drafting calls so far, from the draft times of a running engine.

    Args:
        times: The file with the draft times; without a drafter there is none.
        draft: Lets the engine draft once more, since it writes the file in drafting calls only.
    """
    if times.exists():
        time.sleep(WRITE_EVERY)
        draft()
    return read_draft_times(times).seconds
