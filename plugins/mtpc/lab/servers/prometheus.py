"""Reads the page on which an engine publishes its counters, and sums what it counts more than once."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mtpc.errors import MTPCError


def parse(text: str) -> list[Sample]:
    """All samples of a page of metrics, in Prometheus' text format.

    Errors: `MTPCError` for a page that is in another format.
    """
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, IndexError) as error:
        raise MTPCError(
            f"the server's metrics are not in Prometheus' text format: {error or type(error).__name__}."
        ) from None


def total(samples: Sequence[Sample], name: str) -> float:
    """The sum of a metric over all its labels (an engine counts once for each of its replicas)."""
    return sum(sample.value for sample in samples if sample.name == name)


def totals_by(samples: Sequence[Sample], name: str, label: str) -> dict[str, float]:
    """The sum of a metric for each value of one label."""
    totals: dict[str, float] = {}
    for sample in samples:
        if sample.name == name and label in sample.labels:
            totals[sample.labels[label]] = totals.get(sample.labels[label], 0.0) + sample.value
    return totals
