"""Rows of the speed cards: tokens/s of an engine without a drafter, with one, with n-grams, and with prompt lookup."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.completed import Engine
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.servers.ngram import Ngram, ngram_arguments
from mtpc.lab.servers.speculation import resolve_num_drafts, speculative_arguments, speculative_values
from mtpc.lab.table import Table
from mtpc.lab.text.prompts import SHIPPED
from tests.gpu.running import Figures, Run
from tests.support.random_models import make_drafter, make_target

CONCURRENCY, TEMPERATURES, TOKENS = (1, 8, 32, 64), (0.0, 1.0), 128
CONTEXT = 2048
NGRAM = {"vllm": Ngram(2, 4, 4), "sglang": Ngram(1, 7, 11)}
BY_BATCH_SIZE = "drafter-by-batch-size"  # name of a setup
SECONDS = 20.0  # a measurement begins only if as many are left


class Pair(NamedTuple):
    """A target with its drafter, and the prompts that it completes."""

    target: Path
    drafter: Path
    prompts: Path


def pair_of(name: str, run: Run) -> Pair:
    """Return the included models, or on a CPU random models of the size of those in tests.

    Args:
        name: "bytes" for the byte-level target; otherwise the chat target.
        run: The row that measures.

    Raises:
        NotRunError: The chat target is missing.
    """
    if not run.on_gpu:
        target = make_target(run.folder / "target")
        return Pair(target, make_drafter(run.folder / "drafter", target), SHIPPED)
    weights = run.paths.weights
    if name == "bytes":
        shipped = weights / "byte-mtpc-hmm-n8"
        return Pair(weights / "byte-target", shipped, SHIPPED)
    return Pair(run.chat_target(), weights / "smollm2-fastmtp", run.paths.prompts)


def longest_text(target: Path) -> int:
    """Return the largest context length of a target."""
    return int(json.loads((target / "config.json").read_text())["max_position_embeddings"])


def prompts_for(file: Path, target: Path, count: int, longest: int) -> list[list[int]]:
    """Take prompts of each category in turn, and repeat them if there are too few.

    Args:
        file: Prompts file.
        target: Folder of the target.
        count: Number of prompts.
        longest: Tokens that are kept of the end of a longer prompt.
    """
    by_kind = prompts_of_file(file, target, sys.maxsize).by_kind.values()
    asked = [prompt for prompt in chain.from_iterable(zip_longest(*by_kind)) if prompt is not None]
    return [prompt[-longest:] for prompt in islice(cycle(asked), count)]


def lengths_of(count: int, mean: int) -> list[int]:
    """Return the lengths of outputs, half to one and a half of the mean, so that they end in different steps."""
    return [mean * (2 + number % 5) // 4 for number in range(count)]


def speculative_of(setup: str, pair: Pair) -> dict[str, Any] | None:
    """Return vLLM's speculative-config."""
    if setup == "none":
        return None
    if setup == "n-gram":
        shortest, longest, drafts = NGRAM["vllm"]
        found = {"prompt_lookup_min": shortest, "prompt_lookup_max": longest, "num_speculative_tokens": drafts}
        return {"method": "ngram", **found}
    drafts = resolve_num_drafts(pair.drafter, None)
    by_size = {"num_speculative_tokens_per_batch_size": ranges(drafts)} if setup == BY_BATCH_SIZE else {}
    return speculative_values(pair.drafter, drafts) | by_size


def ranges(drafts: int) -> list[list[int]]:
    """Return triples (first batch size, last batch size, draft tokens) with fewer draft tokens in larger batches."""
    return [[1, 8, drafts], [9, 32, 1], [33, max(CONCURRENCY), 0]]


def words_of(setup: str, pair: Pair, folder: Path) -> list[str]:
    """Return words of SGLang's command line; folder: for a file that they name."""
    if setup == "none":
        return []
    if setup == "n-gram":
        return ngram_arguments(NGRAM["sglang"])
    drafts = resolve_num_drafts(pair.drafter, None)
    steps = ["--speculative-num-steps", str(drafts), "--speculative-eagle-topk", "1"]
    if setup == BY_BATCH_SIZE:
        file = folder / "steps.json"
        file.write_text(json.dumps({str(first): {"candidate_steps": [best]} for first, _, best in ranges(drafts)}))
        steps += ["--speculative-adaptive", "--speculative-adaptive-config", str(file)]
    return [*speculative_arguments(pair.drafter), *steps]


def started(engine: str, pair: Pair, setup: str, run: Run, requests: int, context: int) -> Engine:
    """Start an engine for ``requests`` concurrent requests."""
    if engine == "sglang":
        from benchmarks.gpu.on_sglang import SGLang

        more = ["--max-running-requests", str(requests), "--context-length", str(context)]
        return SGLang(run, pair.target, [*words_of(setup, pair, run.folder), *more])
    from benchmarks.gpu.on_vllm import VLLM

    lookup = {"additional_config": {"mtpc": {"copy": True}}} if setup == "drafter-and-lookup" else {}
    return VLLM(
        run, pair.target, speculative_of(setup, pair), max_num_seqs=requests, max_model_len=context,
        enable_prefix_caching=False, **lookup,
    )  # fmt: skip


def measured(engine: str, name: str, setup: str) -> Callable[[Run], str]:
    """Row: measure a setup at every temperature and concurrency."""

    def row(run: Run) -> str:
        end = time.monotonic() + run.seconds - SECONDS
        pair = pair_of(name, run)
        sizes = CONCURRENCY if run.on_gpu else (1, 2)
        tokens, context = (TOKENS, min(CONTEXT, longest_text(pair.target))) if run.on_gpu else (8, 256)
        asked = prompts_for(pair.prompts, pair.target, 2 * max(sizes), context - 2 * tokens)
        served = started(engine, pair, setup, run, max(sizes), context)
        found: Figures = []
        for temperature in TEMPERATURES:
            # Kernels are compiled on first use, and the first steps of each size are slow.
            served.complete(asked, max(sizes), temperature, lengths_of(len(asked), tokens))
            for size in sizes:
                if time.monotonic() > end:
                    return summary(found, "; no time for further measurements")
                count = max(2 * size, 4)
                done = served.complete(asked[:count], size, temperature, lengths_of(count, tokens))
                found.append({
                    "engine": engine, "pair": name, "setup": setup, "prompts": pair.prompts.name,
                    "temperature": temperature, "concurrency": size, "requests": max(2 * size, 4),
                    "tokens_per_second": done.tokens / done.seconds, "acceptance_length": done.acceptance_length,
                    "drafting_share": done.drafting / done.seconds, "seconds": done.seconds,
                })  # fmt: skip
                run.keep(found)
        return summary(found)

    return row


def summary(figures: Figures, end: str = "") -> str:
    """Return a sentence with the tokens/s of each measurement."""
    lines: dict[float, list[str]] = {}
    for one in figures:
        lines.setdefault(one["temperature"], []).append(f"{one['concurrency']}: {one['tokens_per_second']:.0f}")
    return "tokens/s " + "; ".join(f"T = {key:g}: {', '.join(cells)}" for key, cells in lines.items()) + end


def table(rows: Mapping[str, Figures]) -> Table:
    """Return a table of all rows: tokens/s, speedup over no drafter, acceptance length and drafting share."""
    found = [one for figures in rows.values() for one in figures]
    points = dict.fromkeys((one["engine"], one["pair"], one["temperature"], one["concurrency"]) for one in found)
    setups = list(dict.fromkeys(one["setup"] for one in found))
    by_key = {(point_of(one), one["setup"]): one for one in found}
    lines = []
    for point in sorted(points):
        plain = by_key.get((point, "none"))
        cells = [cell(by_key.get((point, setup)), plain) for setup in setups]
        lines.append([point[0], point[1], f"{point[2]:g}", str(point[3]), *cells])
    named = ", ".join(dict.fromkeys(one["prompts"] for one in found))
    title = f"tokens/s (speedup, acceptance length, drafting share); prompts: {named}"
    return Table(title, ["engine", "models", "T", "concurrency", *setups], lines)


def point_of(one: Mapping[str, Any]) -> tuple[str, str, float, int]:
    """Return what two setups must have in common to be compared."""
    return one["engine"], one["pair"], one["temperature"], one["concurrency"]


def cell(one: Mapping[str, Any] | None, plain: Mapping[str, Any] | None) -> str:
    """Return the cell of a setup."""
    if one is None:
        return "-"
    speed = f"{one['tokens_per_second']:.0f}"
    if one["setup"] == "none":
        return speed
    ratio = f"{one['tokens_per_second'] / plain['tokens_per_second']:.2f}x, " if plain is not None else ""
    return f"{speed} ({ratio}{one['acceptance_length']:.2f}, {one['drafting_share']:.0%})"
