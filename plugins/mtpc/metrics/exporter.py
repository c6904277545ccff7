"""Hands counts to `prometheus_client`, now and then."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, generate_latest

from mtpc.files.replacing import replacing
from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.tally import Counting, Totals

EVERY = 1.0  # seconds
VOCABULARY, POSITION, PART = "vocabulary", "position", "part"
# The metrics by their names, to which Prometheus adds "_total": what they count, and by what.
METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "mtpc_drafts": ("Drafts that were verified, by draft vocabulary.", (VOCABULARY,)),
    "mtpc_draft_tokens": ("Drafted tokens that were verified.", (VOCABULARY, POSITION)),
    "mtpc_accepted_tokens": ("Drafted tokens that were accepted.", (VOCABULARY, POSITION)),
    "mtpc_requests": ("Requests that began with this draft vocabulary.", (VOCABULARY,)),
    "mtpc_vocabulary_changes": ("Requests that went over to this draft vocabulary.", (VOCABULARY,)),
    "mtpc_drafting_calls": ("Times that a batch was drafted for.", ()),
    "mtpc_drafting_seconds": ("Time in which batches were drafted for.", ()),
    "mtpc_drafting_part_seconds": ("Time in which a part of the drafter drafted.", (PART,)),
}
Key = tuple[str, tuple[str, ...]]  # of a metric and its labels' values


class Exporter:
    """Counts of one engine on their way to a page of metrics.

    labels: of all of its metrics.  clock: of the drafting; tally: of the drafts; None: that is not counted.
    page: the file that shows the metrics where another process serves the page; None: `prometheus_client` sees to that,
    as with ``PROMETHEUS_MULTIPROC_DIR``.
    """

    def __init__(
        self, labels: Mapping[str, str], clock: DraftClock | None, tally: Counting | None, page: Path | None
    ) -> None:
        self.labels, self.clock, self.tally, self.page = dict(labels), clock, tally, page
        self.registry = CollectorRegistry()
        self.counters = {
            name: Counter(name, what, [*self.labels, *by], registry=self.registry)
            for name, (what, by) in METRICS.items()
        }
        self.shown: dict[Key, float] = {}
        for name in () if tally is None else tally.names:  # from 0 on: Prometheus sees no first step from nothing
            for metric in ("mtpc_drafts", "mtpc_requests", "mtpc_vocabulary_changes"):
                self.counters[metric].labels(*self.labels.values(), name)

    def start(self) -> None:
        """Do so in a thread, which ends with the process."""
        threading.Thread(target=self._run, name="mtpc-metrics", daemon=True).start()

    def _run(self) -> None:
        waiting = threading.Event()
        while self.update():
            waiting.wait(EVERY)

    def update(self) -> bool:
        """Show the counts of now; returns whether there is still a place to show them."""
        new = {key: value for key, value in self._counts().items() if value > self.shown.get(key, 0)}
        for (name, values), value in new.items():
            counter = self.counters[name].labels(*self.labels.values(), *values)
            counter.inc(value - self.shown.get((name, values), 0))
        self.shown |= new
        return self.page is None or (not new and self.page.exists()) or self._write(self.page)

    def _write(self, page: Path) -> bool:
        try:
            with replacing(page) as unfinished:
                unfinished.write_bytes(generate_latest(self.registry))
        except OSError:  # the server has gone, and its folder with it
            return False
        return True

    def _counts(self) -> Mapping[Key, float]:
        counts = defaultdict[Key, float](float)
        if self.clock is not None:
            counts["mtpc_drafting_calls", ()] = self.clock.drafts
            counts["mtpc_drafting_seconds", ()] = self.clock.seconds
            for part, seconds in dict(self.clock.parts).items():
                counts["mtpc_drafting_part_seconds", (part,)] = seconds
        if self.tally is not None:
            for key, count in _named(self.tally.names, self.tally.totals()):
                counts[key] += count
        return counts


def _named(names: tuple[str, ...], totals: Totals) -> Iterator[tuple[Key, int]]:
    """What to add to which metrics; positions are numbered from 0, as vLLM's are."""
    for (number, drafted, accepted), count in totals.drafts.items():
        name = names[number]
        yield ("mtpc_drafts", (name,)), count
        yield from ((("mtpc_draft_tokens", (name, str(place))), count) for place in range(drafted))
        yield from ((("mtpc_accepted_tokens", (name, str(place))), count) for place in range(accepted))
    for (before, after), count in totals.moves.items():
        yield ("mtpc_requests" if before is None else "mtpc_vocabulary_changes", (names[after],)), count
