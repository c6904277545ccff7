"""Reads an engine's Prometheus metrics, and sums them over labels."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mtpc.errors import MTPCError


def parse(text: str) -> list[Sample]:
    """Parse a page of metrics.

    Args:
        text: The page, in Prometheus' text format.

    Returns:
        All samples.

    Raises:
        MTPCError: The page has another format.
    """
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, IndexError) as error:
        raise MTPCError(
            f"the server's metrics are not in Prometheus' text format: {error or type(error).__name__}."
        ) from None


def total(samples: Sequence[Sample], name: str) -> float:
    """Return the sum of a metric over all labels (an engine counts each of its replicas)."""
    return sum(sample.value for sample in samples if sample.name == name)


def totals_by(samples: Sequence[Sample], name: str, label: str) -> dict[str, float]:
    """Return the sum of a metric for each value of one label."""
    totals: dict[str, float] = {}
    for sample in samples:
        if sample.name == name and label in sample.labels:
            totals[sample.labels[label]] = totals.get(sample.labels[label], 0.0) + sample.value
    return totals
