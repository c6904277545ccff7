"""The metrics that the dashboard and the alerts ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

CONFIGS = Path(__file__).parents[2] / "serve_configs"


def expressions() -> Iterator[str]:
    """Every query of either."""
    board = json.loads((CONFIGS / "grafana" / "mtpc.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    alerts = yaml.safe_load((CONFIGS / "prometheus" / "alerts.yml").read_text())
    yield from (rule["expr"] for group in alerts["groups"] for rule in group["rules"])


def metrics(engine: str) -> set[str]:
    """Those of one engine, "vllm" or "sglang", and ours.

    A query may name a metric by a pattern, of both engines' names for it: one of them must be this engine's.
    """
    return {name for query in expressions() for name in _named(query, engine)}


def _named(query: str, engine: str) -> Iterator[str]:
    query = query.replace("$engine:", f"{engine}:").replace("(vllm|sglang):", f"{engine}:")
    for pattern in re.findall(rf"\b{engine}:\(([\w|]+)\)", query):
        yield f"{engine}:({pattern})"
    yield from re.findall(rf"\b(?:{engine}:|mtpc_)\w+", query)


def missing(engine: str, shown: set[str]) -> set[str]:
    """What is asked for but stands on no page of these samples."""
    return {name for name in metrics(engine) if not any(re.fullmatch(name, one) for one in shown)}
