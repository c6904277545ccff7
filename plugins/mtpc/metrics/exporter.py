"""Passes counts to `prometheus_client` once per second."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from mtpc.files.replacing import replacing
from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.tally import TallySource, Totals

EVERY = 1.0  # seconds between exports
VOCABULARY, POSITION, PART = "vocabulary", "position", "part"
# Metrics by name, to which Prometheus adds "_total": description and labels.
METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "mtpc_drafts": ("Drafts that were verified, by draft vocabulary.", (VOCABULARY,)),
    "mtpc_draft_tokens": ("Draft tokens that were verified.", (VOCABULARY, POSITION)),
    "mtpc_accepted_tokens": ("Draft tokens that were accepted.", (VOCABULARY, POSITION)),
    "mtpc_requests": ("Requests that began with this draft vocabulary.", (VOCABULARY,)),
    "mtpc_vocabulary_changes": ("Requests that changed to this draft vocabulary.", (VOCABULARY,)),
    "mtpc_drafting_calls": ("Drafting calls, one per batch.", ()),
    "mtpc_drafting_seconds": ("Time inside drafting calls.", ()),
    "mtpc_drafting_part_seconds": ("Time inside drafting calls, by part of the drafter.", (PART,)),
}
INFO = "mtpc_drafter_info"  # in vLLM; SGLang's ``/get_server_info`` has the same facts
INFO_HELP = "1, in vLLM: what the server drafts with."
INFO_LABELS = ("drafter", "method", "num_drafts", "copy", "language", "draft_sample_method")
NO_INFO: Mapping[str, str] = {}
Key = tuple[str, tuple[str, ...]]  # name of a metric and values of its labels


class Exporter:
    """Exports the counts of one engine: call `start` once; `update` may be called directly instead.

    Args:
        labels: Labels of all metrics.
        clock: Drafting time; None: it is not exported.
        tally: Counts of drafts; None: they are not exported.
        page: File to write the metrics to, where another process serves the page; None: `prometheus_client` does that,
            for example with ``PROMETHEUS_MULTIPROC_DIR``.
        info: Values of `INFO_LABELS`; none: the metric is not exported.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        clock: DraftClock | None,
        tally: TallySource | None,
        page: Path | None,
        info: Mapping[str, str] = NO_INFO,
    ) -> None:
        self.labels, self.clock, self.tally, self.page = dict(labels), clock, tally, page
        self.registry = CollectorRegistry()
        self.counters = {
            name: Counter(name, what, [*self.labels, *by], registry=self.registry)
            for name, (what, by) in METRICS.items()
        }
        self.exported: dict[Key, float] = {}
        if info:
            names = [*self.labels, *INFO_LABELS]
            gauge = Gauge(INFO, INFO_HELP, names, registry=self.registry, multiprocess_mode="max")
            gauge.labels(**self.labels, **info).set(1)
        for name in () if tally is None else tally.names:  # start at 0: Prometheus ignores the first value of a series
            for metric in ("mtpc_drafts", "mtpc_requests", "mtpc_vocabulary_changes"):
                self.counters[metric].labels(*self.labels.values(), name)

    def start(self) -> None:
        """Export in a daemon thread."""
        threading.Thread(target=self._run, name="mtpc-metrics", daemon=True).start()

    def _run(self) -> None:
        waiting = threading.Event()
        while self.update():
            waiting.wait(EVERY)

    def update(self) -> bool:
        """Export the present counts; return whether there is still a place to export to."""
        new = {key: value for key, value in self._counts().items() if value > self.exported.get(key, 0)}
        for (name, values), value in new.items():
            counter = self.counters[name].labels(*self.labels.values(), *values)
            counter.inc(value - self.exported.get((name, values), 0))
        self.exported |= new
        return self.page is None or (not new and self.page.exists()) or self._write(self.page)

    def _write(self, page: Path) -> bool:
        try:
            with replacing(page) as unfinished:
                unfinished.write_bytes(generate_latest(self.registry))
        except OSError:  # the server has ended and removed its folder
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
    """Yield amounts to add to metrics; positions are numbered from 0, as in vLLM."""
    for (number, drafted, accepted), count in totals.drafts.items():
        name = names[number]
        yield ("mtpc_drafts", (name,)), count
        yield from ((("mtpc_draft_tokens", (name, str(position))), count) for position in range(drafted))
        yield from ((("mtpc_accepted_tokens", (name, str(position))), count) for position in range(accepted))
    for (before, after), count in totals.moves.items():
        yield ("mtpc_requests" if before is None else "mtpc_vocabulary_changes", (names[after],)), count
