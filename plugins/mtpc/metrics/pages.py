"""Shows on one process's page of metrics what other processes have written into files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


class Pages(Collector):
    """The metrics of all files ``*.prom`` of a folder, read whenever the page is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> list[Metric]:
        """Nothing is known of them before."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with what all files have of it."""
        metrics: dict[str, Metric] = {}
        for file in sorted(self.folder.glob("*.prom")):
            for metric in text_string_to_metric_families(file.read_text()):
                if metric.name in metrics:
                    metrics[metric.name].samples += metric.samples
                else:
                    metrics[metric.name] = metric
        yield from metrics.values()
