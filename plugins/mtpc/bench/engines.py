"""What the benchmark must know of an engine: how its server is started and how it counts drafts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtpc.bench.acceptance import DraftCounters
from mtpc.bench.prometheus import Sample, total, totals_by
from mtpc.errors import MTPCError
from mtpc.inspection import speculative_config


@dataclass(frozen=True)
class ServerSettings:
    """What a server under test is started with; the same with and without a drafter."""

    target: Path
    max_batch: int  # largest number of requests at once
    max_length: int  # prompt and completion, in tokens
    drafter: Path | None = None
    num_drafts: int = 0
    extra: tuple[str, ...] = ()  # arguments passed on as they are


@dataclass(frozen=True)
class Engine:
    """An engine that can be measured."""

    name: str
    command: Callable[[ServerSettings, int], list[str]]  # (settings, port) -> command line
    counters: Callable[[list[Sample]], DraftCounters]
    environment: Callable[[], dict[str, str]] = dict


def has_compiler() -> bool:
    """Whether torch can compile models on this machine: it needs a C++ compiler."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


def vllm_command(settings: ServerSettings, port: int) -> list[str]:
    """``vllm serve``; without prefix caching, so that a repeated prompt costs the same each time."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(settings.target)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "target"]
    command += ["--max-num-seqs", str(settings.max_batch), "--max-model-len", str(settings.max_length)]
    command += ["--no-enable-prefix-caching"]
    if not has_compiler():
        command += ["--enforce-eager"]
    if settings.drafter is not None:
        command += ["--speculative-config", speculative_config(settings.drafter, settings.num_drafts)]
    return [*command, *settings.extra]


def vllm_environment() -> dict[str, str]:
    """Variables for vLLM's processes; on a CPU, Intel's OpenMP goes first: vLLM asks for it."""
    values = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB; read on a CPU only
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"  # of the distribution intel-openmp, part of the CPU build
    if openmp.exists():
        values["LD_PRELOAD"] = ":".join(filter(None, (str(openmp), os.environ.get("LD_PRELOAD"))))
    return values


def vllm_counters(samples: list[Sample]) -> DraftCounters:
    """vLLM's ``vllm:spec_decode_*`` counters; all zero when it serves without a drafter."""
    prefix = "vllm:spec_decode_num"
    by_position = totals_by(samples, f"{prefix}_accepted_tokens_per_pos_total", "position")
    return DraftCounters(
        total(samples, f"{prefix}_drafts_total"),
        total(samples, f"{prefix}_draft_tokens_total"),
        total(samples, f"{prefix}_accepted_tokens_total"),
        tuple(by_position[position] for position in sorted(by_position, key=int)),
    )


ENGINES = {
    "vllm": Engine("vllm", vllm_command, vllm_counters, vllm_environment),
}


def find_engine(name: str) -> Engine:
    """An engine by its name.

    Errors: `MTPCError` for a name that is not known.
    """
    if name not in ENGINES:
        raise MTPCError(f"unknown engine {name!r}; the engines are {', '.join(ENGINES)}.")
    return ENGINES[name]
