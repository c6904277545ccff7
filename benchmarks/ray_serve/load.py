"""What is served and who asks, of every script here."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from benchmarks.ray_serve.clients import Clients, texts_of
from benchmarks.ray_serve.cluster import Cluster
from mtpc.lab.text.prompts import SHIPPED, read_prompts

ROOT = Path(__file__).parents[2]
DRAFTED, PLAIN = "byte", "byte-without-drafter"  # models of each byte.yaml in serve_configs/ray


def add_arguments(parser: argparse.ArgumentParser, out: Path) -> None:
    """Of what is served and of the clients; out: the folder of what is found, unless another one is given."""
    parser.add_argument("--config", type=Path, default=ROOT / "serve_configs" / "ray" / "byte.yaml")
    parser.add_argument("--models", type=Path, default=ROOT / "weights", help="what the file names /models")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--out", type=Path, default=out)


def drafted_model(config: dict[str, Any]) -> dict[str, Any]:
    """What applications say of the model with the drafter."""
    models = (model for application in config["applications"] for model in application["args"]["llm_configs"])
    return next(model for model in models if model["model_loading_config"]["model_id"] == DRAFTED)


def drafter_setting(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Where applications name the drafter's directory: settings of either engine, and the key in them."""
    kwargs = drafted_model(config)["engine_kwargs"]
    if "speculative_config" in kwargs:
        return kwargs["speculative_config"], "model"
    return kwargs, "speculative_draft_model_path"


def clients_of(served: Cluster, given: argparse.Namespace) -> Clients:
    """Clients of the model with the drafter; what they compare texts with, the model without one has just said."""
    prompts = [str(prompt) for prompt, _ in read_prompts(SHIPPED)][: given.prompts]
    expected = asyncio.run(texts_of(served.url, PLAIN, prompts))
    return Clients(served.url, DRAFTED, expected, given.clients)
