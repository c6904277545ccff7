"""Adds metrics that other processes have written to files to this process's metrics page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


class Pages(Collector):
    """A collector of all files ``*.prom`` in a folder, read for each scrape.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> list[Metric]:
        """Return no metrics: none are known in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each metric once, with the samples of all files."""
        metrics: dict[str, Metric] = {}
        for file in sorted(self.folder.glob("*.prom")):
            try:
                text = file.read_text()
            except FileNotFoundError:  # its process has just ended
                continue
            for metric in text_string_to_metric_families(text):
                if metric.name in metrics:
                    metrics[metric.name].samples += metric.samples
                else:
                    metrics[metric.name] = metric
        yield from metrics.values()
