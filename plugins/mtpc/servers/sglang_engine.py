"""SGLang behind its server.

SGLang publishes how often it verified, but not what was accepted at which position.  That it tells in its answers:
for each request a histogram of how many drafts its steps accepted.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from mtpc.servers.draft_counters import DraftCounters
from mtpc.servers.engine import Engine, ServerSettings
from mtpc.servers.load import CountsInAnswers, run_load
from mtpc.servers.speculation import speculative_arguments

RESERVED = 256  # slots of the KV cache for the drafts of each request: SGLang holds those of two steps


def sglang_command(settings: ServerSettings, port: int) -> list[str]:
    """``sglang.launch_server``.

    Without prefix caching, so that a repeated prompt costs the same each time; asleep while idle, so that neither of
    two servers slows the other; on a CPU with no larger KV cache than needed, which would else take most of the memory.
    """
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(settings.target)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "target"]
    command += ["--max-running-requests", str(settings.max_batch)]
    command += ["--disable-radix-cache", "--sleep-on-idle", "--skip-server-warmup"]
    if not torch.cuda.is_available():
        slots = settings.max_batch * (settings.max_length + RESERVED)
        command += ["--device", "cpu", "--max-total-tokens", str(slots)]
    if settings.drafter is not None:
        command += [*speculative_arguments(settings.drafter), "--speculative-num-steps", str(settings.num_drafts)]
    return [*command, *settings.extra]


def sglang_environment() -> dict[str, str]:
    """Variables for SGLang's processes; on a CPU one thread each, because threads that wait for each other spin."""
    values = {"HF_HUB_OFFLINE": "1"}
    if not torch.cuda.is_available():
        values |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return values


def read_details(event: dict[str, Any]) -> DraftCounters | None:
    """The counts in an event of a stream, if it brings any: ``sglext.spec_tokens_details``.

    Its histogram ends with the most drafts that a step accepted, and so do the positions.
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


DETAILS = CountsInAnswers({"return_spec_tokens_details": True}, read_details)
SGLANG = Engine(
    "sglang", "SGLang", sglang_command, environment=sglang_environment, load=partial(run_load, counts=DETAILS)
)
