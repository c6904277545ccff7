"""Options, models and clients that both Ray Serve benchmarks share."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from benchmarks.ray_serve.clients import Clients, texts_of
from benchmarks.ray_serve.cluster import Cluster
from mtpc.lab.text.prompts import SHIPPED, read_prompts

ROOT = Path(__file__).parents[2]
DRAFTED, PLAIN = "byte", "byte-without-drafter"  # models in both byte.yaml of serve_configs/ray


def add_arguments(parser: argparse.ArgumentParser, out: Path) -> None:
    """Add the options of both benchmarks; ``out`` is the default folder of the results."""
    config = "serve the applications of this file (default: serve_configs/ray/byte.yaml)"
    parser.add_argument("--config", type=Path, default=ROOT / "serve_configs" / "ray" / "byte.yaml", help=config)
    models = "replace /models in the file by this folder (default: weights)"
    parser.add_argument("--models", type=Path, default=ROOT / "weights", help=models)
    parser.add_argument("--clients", type=int, default=32, help="number of concurrent clients (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=24, help="number of different prompts (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=out, help="write results to this folder (default: %(default)s)")


def drafted_model(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the model with the drafter."""
    models = (model for application in config["applications"] for model in application["args"]["llm_configs"])
    return next(model for model in models if model["model_loading_config"]["model_id"] == DRAFTED)


def drafter_setting(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the engine settings that hold the path of the drafter checkpoint, and their key for it."""
    kwargs = drafted_model(config)["engine_kwargs"]
    if "speculative_config" in kwargs:
        return kwargs["speculative_config"], "model"
    return kwargs, "speculative_draft_model_path"


def clients_of(served: Cluster, given: argparse.Namespace) -> Clients:
    """Generate the expected outputs with the model without a drafter, and return clients of the other model."""
    prompts = [str(prompt) for prompt, _ in read_prompts(SHIPPED)][: given.prompts]
    expected = asyncio.run(texts_of(served.url, PLAIN, prompts))
    return Clients(served.url, DRAFTED, expected, given.clients)
