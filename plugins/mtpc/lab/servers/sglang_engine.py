"""SGLang behind its server.

SGLang's metrics count verifications but not the accepted draft tokens at each position.  Its responses do: they carry
a histogram of the number of draft tokens that the steps of a request accepted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from mtpc.errors import MTPCError
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.load import ResponseCounters, run_load
from mtpc.lab.servers.ngram import Ngram, ngram_arguments
from mtpc.lab.servers.plugins import without_plugin
from mtpc.lab.servers.server import fetch
from mtpc.lab.servers.speculation import speculative_arguments

INFORMATION = "/get_server_info"  # route that only SGLang has, with its settings
RESERVED = 256  # KV cache slots for the draft tokens of each request: SGLang holds those of two steps
CORPUS = 1_000_000  # tokens that the n-gram drafter keeps on a CPU: SGLang's default takes gigabytes


def sglang_command(settings: ServerSettings, port: int) -> list[str]:
    """Return the ``sglang.launch_server`` command.

    Prefix caching is off, so that a repeated prompt costs the same each time.  The server sleeps while idle, so that
    servers do not slow each other.  On a CPU the KV cache is limited, because by default it takes most of the memory.
    """
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(settings.target)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "target"]
    command += ["--max-running-requests", str(settings.max_batch)]
    command += ["--disable-radix-cache", "--sleep-on-idle", "--skip-server-warmup"]
    if not torch.cuda.is_available():
        slots = settings.max_batch * (settings.max_length + RESERVED)
        command += ["--device", "cpu", "--max-total-tokens", str(slots)]
        if settings.ngram is not None:
            command += ["--speculative-ngram-capacity", str(CORPUS)]
    if settings.drafter is not None:
        command += [*speculative_arguments(settings.drafter), "--speculative-num-steps", str(settings.num_drafts)]
    if settings.ngram is not None:
        command += ngram_arguments(settings.ngram)
    return [*command, *settings.extra]


def sglang_environment(settings: ServerSettings) -> dict[str, str]:
    """Return environment variables of SGLang; on a CPU one thread each, because waiting threads use a core."""
    values = {"HF_HUB_OFFLINE": "1"}
    if not torch.cuda.is_available():
        values |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return values


def read_details(event: dict[str, Any]) -> DraftCounters | None:
    """Read the counts of draft tokens from an event of a stream (``sglext.spec_tokens_details``).

    Args:
        event: The event's JSON.

    Returns:
        The counts, up to the last position at which a draft token was accepted; None where the event has none.
    """
    details = (event.get("sglext") or {}).get("spec_tokens_details")
    if not details or not details["spec_verify_ct"]:
        return None
    verified = details["spec_correct_drafts_histogram"]
    at_least = list(accumulate(reversed(verified)))[::-1]
    return DraftCounters(
        details["spec_verify_ct"],
        details["spec_num_proposed_drafts"],
        details["spec_num_correct_drafts"],
        tuple(map(float, at_least[1:])),
    )


def ngram_obstacle(ngram: Ngram, temperatures: Sequence[float]) -> str | None:
    """Return why SGLang's n-gram drafter cannot be measured, as the end of a sentence; None where it can."""
    if ngram.shortest > 1:
        return f"it drafts after every match, so the MIN of --ngram must be 1, not {ngram.shortest}"
    if max(temperatures) > 0 and not torch.cuda.is_available():
        return "on a CPU it generates the most probable tokens at every temperature (measure it with --temperatures 0)"
    for tool in (os.environ.get("CXX", "c++"), "ninja"):
        if shutil.which(tool) is None:
            return f"SGLang compiles it when it starts, and {tool} is not installed"
    return None


def flush_cache(url: str) -> None:
    """Empty a server's caches, because its n-gram drafter also drafts from the outputs of earlier requests.

    Raises:
        MTPCError: The server refuses.
    """
    fetch(f"{url}/flush_cache?timeout=10", timeout=30.0)


def has_drafter(url: str) -> bool:
    """Return whether a server of SGLang has a speculative algorithm; False for one of another engine.

    Args:
        url: Its address.
    """
    try:
        return bool(json.loads(fetch(f"{url}{INFORMATION}")).get("speculative_algorithm"))
    except (MTPCError, ValueError):
        return False


GROUPS = ("sglang.srt.plugins", "sglang.srt.platforms")
DETAILS = ResponseCounters({"return_spec_tokens_details": True}, read_details)
SGLANG = Engine(
    "sglang",
    "SGLang",
    sglang_command,
    environment=sglang_environment,
    load=partial(run_load, counts=DETAILS),
    ngram=Ngram(1, 7, 11),  # SGLang's defaults
    ngram_obstacle=ngram_obstacle,
    clear_history=flush_cache,
    without_plugin=partial(without_plugin, "SGLANG_PLUGINS", GROUPS, "sglang_mtpc"),
    has_drafter=has_drafter,
    fixed_length=("--speculative-token-map", "?adaptive=false"),
)
