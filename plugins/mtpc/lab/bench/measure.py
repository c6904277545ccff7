"""One measurement: one server, one batch size, one temperature."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.draft_times import DraftTimes, read_draft_times
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.load import CompletionParams, Load
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.server import Server
from mtpc.lab.text.prompts import Prompt


@dataclass(frozen=True)
class Measurement:
    """The figures of one run of requests; times are in seconds.

    Attributes:
        requests: Number of requests.
        tokens: Number of generated tokens.
        seconds: Wall time.
        in_flight: Mean number of concurrent requests.
        first_token: Median time to first token (TTFT).
        per_token: Median time per output token (TPOT).
        drafts: Counts of draft tokens.
        draft_seconds: Mean time of a drafting call; NaN where it was not timed.
        texts: The completions.
        part_seconds: Mean time of each part of a drafting call.
        draft_calls: Number of drafting calls.
    """

    requests: int
    tokens: int
    seconds: float
    in_flight: float
    first_token: float
    per_token: float
    drafts: DraftCounters
    draft_seconds: float
    texts: tuple[str, ...]
    part_seconds: Mapping[str, float] = field(default_factory=dict)
    draft_calls: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Throughput of all requests together."""
        return self.tokens / self.seconds

    @property
    def steps(self) -> float:
        """Number of decoding steps, with or without a draft, summed over the requests.

        The first token of a request is left out, because it comes from the prompt.  The last step may have accepted
        more tokens than the request has left.
        """
        return max(self.tokens - self.requests - self.drafts.accepted, self.drafts.drafts)

    @property
    def step_seconds(self) -> float:
        """Mean wall time of a decoding step; NaN where no request has a second token."""
        return self.seconds * self.in_flight / self.steps if self.steps else float("nan")

    @property
    def drafting_share(self) -> float:
        """Share of the wall time that is spent on drafting; NaN where it was not timed."""
        return self.draft_seconds * self.draft_calls / self.seconds

    @property
    def part_shares(self) -> dict[str, float]:
        """Share of the wall time that each timed part of drafting takes."""
        return {part: seconds * self.draft_calls / self.seconds for part, seconds in self.part_seconds.items()}


def measure(
    engine: Engine, server: Server, model: str, prompts: Sequence[Prompt], sampling: CompletionParams, concurrency: int
) -> Measurement:
    """Complete the prompts and collect the figures.

    Draft tokens are counted in the engine's responses, or by the difference of its counters before and after.

    Args:
        engine: The engine.
        server: The server.
        model: Name of the served model.
        prompts: Prompts, as text or token ids.
        sampling: Parameters of the requests.
        concurrency: Number of requests in flight.

    Returns:
        The figures.

    Raises:
        MTPCError: The server cannot be reached, refuses a request or breaks off.
    """
    counters, times = _counters(engine, server), read_draft_times(server.draft_times)
    load = engine.load(server.url, model, prompts, sampling, concurrency)
    drafts = load.drafts + _counters(engine, server).since(counters)
    return summarize(load, drafts, times, read_draft_times(server.draft_times))


def _counters(engine: Engine, server: Server) -> DraftCounters:
    return engine.counters(parse(server.metrics())) if engine.counters else NO_DRAFTS


def summarize(load: Load, drafts: DraftCounters, before: DraftTimes, after: DraftTimes) -> Measurement:
    """Return the figures of one run, from the drafting times before and after it."""
    calls = after.calls - before.calls
    return Measurement(
        requests=len(load.completions),
        tokens=load.tokens,
        seconds=load.seconds,
        in_flight=load.in_flight,
        first_token=statistics.median(completion.first for completion in load.completions),
        per_token=statistics.median(completion.per_token for completion in load.completions),
        drafts=drafts,
        draft_seconds=(after.seconds - before.seconds) / calls if calls else float("nan"),
        texts=tuple(completion.text for completion in load.completions),
        draft_calls=calls,
        part_seconds={
            part: (seconds - before.parts.get(part, 0.0)) / calls for part, seconds in after.parts.items() if calls
        },
    )
