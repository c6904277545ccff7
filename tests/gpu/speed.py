"""Rows: tokens/s of both engines without and with what ships, at batch 1 to 64, by `mtpc bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu.running import NotRunError, Run

ROOT = Path(__file__).parents[2]
BATCHES, REQUESTS = "1,2,4,8,16,32,64", 64
MEMORY = 8 << 30  # bytes of each server's KV cache: both are on the device at a time
OWN = {
    "vllm": ["--gpu-memory-utilization=0.4", f"--kv-cache-memory-bytes={MEMORY}"],
    "sglang": ["--mem-fraction-static=0.3"],
}


class Pair(NamedTuple):
    """A target with its drafter, and prompts."""

    target: str
    drafter: str
    prompts: str


PAIRS = {
    "bytes": Pair("weights/byte-target", "weights/byte-mtpc-hmm-n8", "benchmarks/prompts.jsonl"),
    "chat": Pair("runs/smollm2", "weights/smollm2-fastmtp", "benchmarks/chat_prompts.jsonl"),
}


def command(engine: str, pair: Pair, run: Run) -> list[str]:
    """Of `mtpc bench`, without its first word.  Drafts are not timed: that would wait for the device."""
    own = [*OWN[engine], *_of_vllm(run.vllm)] if engine == "vllm" else [*OWN[engine], *run.sglang]
    return [
        "bench", "--engine", engine, "--target", pair.target, "--drafter", pair.drafter, "--prompts", pair.prompts,
        "--batch-sizes", BATCHES, "--temperatures", "0,1", "--requests", str(REQUESTS), "--rounds", "1",
        "--max-tokens", "128", "--no-ngram", "--no-draft-times", "--out", str(run.folder / "bench"),
        *(f"--server-arg={argument}" for argument in own),
    ]  # fmt: skip


def _of_vllm(arguments: dict[str, Any]) -> list[str]:
    """On a command line; a switch that is on is its name alone."""
    named = {f"--{key.replace('_', '-')}": value for key, value in arguments.items()}
    return [key if value is True else f"{key}={value}" for key, value in named.items()]


def told(results: dict[str, Any]) -> str:
    """Tokens/s without and with, and the speed-up, of each batch size."""
    lines: dict[float, list[str]] = {}
    for point in results["points"]:
        without, with_drafter = (point[f"tokens_per_second_{which}"] for which in ("without", "with"))
        cell = f"{point['batch_size']}: {without:.0f} > {with_drafter:.0f} ({point['speedup']:.2f} x)"
        lines.setdefault(point["temperature"], []).append(cell)
    return "; ".join(f"T = {temperature:g}: {', '.join(cells)}" for temperature, cells in lines.items())


def measured(engine: str, name: str) -> Callable[[Run], str]:
    """Row: a pair on an engine."""

    def row(run: Run) -> str:
        pair = PAIRS[name]
        if not (ROOT / pair.target / "config.json").exists():
            raise NotRunError(f"{pair.target} is missing: `make chat-target`")
        start = [sys.executable, "-c", "from mtpc.cli.main import app; app()"]
        subprocess.run([*start, *command(engine, pair, run)], cwd=ROOT, check=True)
        return told(json.loads((run.folder / "bench" / "results.json").read_text()))

    return row
