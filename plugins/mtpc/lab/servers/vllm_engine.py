"""vLLM, behind its server or offline in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from prometheus_client.samples import Sample

from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.load import run_offline
from mtpc.lab.servers.ngram import ngram_config
from mtpc.lab.servers.plugins import without_plugin
from mtpc.lab.servers.prometheus import parse, total, totals_by
from mtpc.lab.servers.server import fetch
from mtpc.lab.servers.speculation import V1_ARGUMENTS, V1_ENVIRONMENT, speculative_config
from mtpc.methods import method_of
from mtpc.parallel.compiled import has_compiler


def vllm_arguments(settings: ServerSettings) -> list[str]:
    """Return the engine's arguments; prefix caching is off, so that a repeated prompt costs the same each time."""
    arguments = ["--max-num-seqs", str(settings.max_batch), "--max-model-len", str(settings.max_length)]
    arguments += ["--no-enable-prefix-caching"]
    if not has_compiler():
        arguments += ["--enforce-eager"]
    if settings.drafter is not None:
        arguments += ["--speculative-config", speculative_config(settings.drafter, settings.num_drafts)]
        arguments += V1_ARGUMENTS if method_of(settings.drafter).reads_text else []
    if settings.ngram is not None:
        arguments += ["--speculative-config", ngram_config(settings.ngram)]
    return [*arguments, *settings.extra]


def vllm_command(settings: ServerSettings, port: int) -> list[str]:
    """Return the ``vllm serve`` command."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(settings.target)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "target"]
    return [*command, *vllm_arguments(settings)]


def vllm_offline_command(settings: ServerSettings, port: int) -> list[str]:
    """Return the command that runs vLLM's engine in one process, see `vllm_mtpc.offline`."""
    command = [sys.executable, "-m", "vllm_mtpc.offline", "--port", str(port), "--model", str(settings.target)]
    return [*command, *vllm_arguments(settings)]


def vllm_environment(settings: ServerSettings) -> dict[str, str]:
    """Return environment variables of vLLM; on a CPU they preload Intel's OpenMP, which vLLM needs."""
    values = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB; read on a CPU only
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"  # from the distribution intel-openmp, part of the CPU build
    if openmp.exists():
        values["LD_PRELOAD"] = ":".join(filter(None, (str(openmp), os.environ.get("LD_PRELOAD"))))
    if settings.drafter is not None and method_of(settings.drafter).reads_text:
        values |= V1_ENVIRONMENT
    return values


def vllm_offline_environment(settings: ServerSettings) -> dict[str, str]:
    """Return environment variables of an offline engine, which runs in the process that calls it."""
    return {**vllm_environment(settings), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def ngram_plugin_reason(temperatures: Sequence[float]) -> str | None:
    """Return why vLLM's n-gram drafter needs this project's plugin, as a sentence; None where it does not."""
    if max(temperatures) > 0 and not torch.cuda.is_available():
        return "Without it, vLLM verifies draft tokens incorrectly on a CPU above temperature 0, and more slowly."
    return None


def vllm_counters(samples: Sequence[Sample]) -> DraftCounters:
    """Read vLLM's ``vllm:spec_decode_*`` counters.

    Args:
        samples: Samples of its page of metrics.

    Returns:
        The counts; all zero where it serves without a drafter.
    """
    prefix = "vllm:spec_decode_num"
    by_position = totals_by(samples, f"{prefix}_accepted_tokens_per_pos_total", "position")
    return DraftCounters(
        total(samples, f"{prefix}_drafts_total"),
        total(samples, f"{prefix}_draft_tokens_total"),
        total(samples, f"{prefix}_accepted_tokens_total"),
        tuple(by_position[position] for position in sorted(by_position, key=int)),
    )


def has_drafter(url: str) -> bool:
    """Return whether a server of vLLM counts draft tokens, be it none so far.

    Args:
        url: Its address.

    Raises:
        MTPCError: Nothing answers, or the page of metrics cannot be read.
    """
    return any(sample.name.startswith("vllm:spec_decode") for sample in parse(fetch(f"{url}/metrics")))


# Endpoint plugins are left out: vLLM loads only those that are named.
GROUPS = tuple(f"vllm.{name}_plugins" for name in ("general", "io_processor", "platform", "stat_logger"))
VLLM = Engine(
    "vllm",
    "vLLM",
    vllm_command,
    vllm_counters,
    vllm_environment,
    without_plugin=partial(without_plugin, "VLLM_PLUGINS", GROUPS, "vllm_mtpc"),
    ngram_plugin_reason=ngram_plugin_reason,
    has_drafter=has_drafter,
    fixed_length=("--additional-config", '{"mtpc":{"adaptive":false}}'),
)
VLLM_OFFLINE = replace(
    VLLM,
    title="vLLM, offline",
    command=vllm_offline_command,
    environment=vllm_offline_environment,
    load=run_offline,
)
