"""One measurement: one server, one batch size, one temperature."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.draft_times import DraftTimes, read_draft_times
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.load import Load, CompletionParams
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.server import Server
from mtpc.lab.text.prompts import Prompt


@dataclass(frozen=True)
class Measurement:
    """What one run of requests brought; times in seconds."""

    requests: int
    tokens: int
    seconds: float
    in_flight: float  # requests served at a time, on average
    first_token: float  # TTFT, median
    per_token: float  # TPOT, median
    drafts: DraftCounters
    draft_seconds: float  # of one drafting call; NaN where the server does not say
    texts: tuple[str, ...]
    part_seconds: Mapping[str, float] = field(default_factory=dict)  # of a drafting call, by the names of its parts
    draft_calls: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Throughput over all requests."""
        return self.tokens / self.seconds

    @property
    def step_seconds(self) -> float:
        """Wall time of one step of the engine that verifies drafts; NaN without drafts."""
        return self.seconds * self.in_flight / self.drafts.drafts if self.drafts.drafts else float("nan")

    @property
    def drafting_share(self) -> float:
        """Share of a step that drafting takes; NaN where it is not known."""
        return self.draft_seconds / self.step_seconds

    def time_share(self, part: str) -> float:
        """Share of all the time that a part of drafting takes, also in steps that verify no drafts."""
        return self.part_seconds.get(part, 0.0) * self.draft_calls / self.seconds

    @property
    def part_shares(self) -> dict[str, float]:
        """Share of a step that each part of drafting takes, as far as the server says."""
        return {part: seconds / self.step_seconds for part, seconds in self.part_seconds.items()}


def measure(
    engine: Engine, server: Server, model: str, prompts: Sequence[Prompt], sampling: CompletionParams, concurrency: int
) -> Measurement:
    """Run the prompts; what the engine counted is in its answers, or the difference of its counters around them."""
    counters, times = _counters(engine, server), read_draft_times(server.draft_times)
    load = engine.load(server.url, model, prompts, sampling, concurrency)
    drafts = load.drafts + _counters(engine, server).since(counters)
    return summarise(load, drafts, times, read_draft_times(server.draft_times))


def _counters(engine: Engine, server: Server) -> DraftCounters:
    return engine.counters(parse(server.metrics())) if engine.counters else NO_DRAFTS


def summarise(load: Load, drafts: DraftCounters, before: DraftTimes, after: DraftTimes) -> Measurement:
    """The figures of one run."""
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
