"""Reads the text format in which engines publish their counters."""

from __future__ import annotations

import re
from typing import NamedTuple

from mtpc.errors import MTPCError

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Sample(NamedTuple):
    """One line: a metric, its labels and its value."""

    name: str
    labels: dict[str, str]
    value: float


def _unescape(text: str) -> str:
    return re.sub(r'\\[\\"n]', lambda match: _ESCAPES[match.group()], text)


def parse(text: str) -> list[Sample]:
    """All samples of a page of metrics.

    Errors: `MTPCError` for a line that is neither a comment nor a sample.
    """
    samples = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line.strip())
        if match is None:
            raise MTPCError(f"the server's metrics hold a line that is not in Prometheus' text format: {line!r}.")
        name, labels, value = match.groups()
        found = {key: _unescape(content) for key, content in _LABEL.findall(labels or "")}
        try:
            samples.append(Sample(name, found, float(value)))
        except ValueError:
            raise MTPCError(f"the server's metrics give {name} the value {value!r}, which is not a number.") from None
    return samples


def total(samples: list[Sample], name: str) -> float:
    """The sum of a metric over all its labels (an engine counts once for each of its replicas)."""
    return sum(sample.value for sample in samples if sample.name == name)


def totals_by(samples: list[Sample], name: str, label: str) -> dict[str, float]:
    """The sum of a metric for each value of one label."""
    found: dict[str, float] = {}
    for sample in samples:
        if sample.name == name and label in sample.labels:
            found[sample.labels[label]] = found.get(sample.labels[label], 0.0) + sample.value
    return found
