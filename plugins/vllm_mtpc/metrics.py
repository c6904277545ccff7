"""Brings metrics of drafters to vLLM's own page of metrics, where vLLM shows its own.

The page is served by the first process, drafts are made in others.  Those write what they count into a folder, which
the first process reads whenever the page is read.  Where several processes serve the page, `prometheus_client` has such
a folder itself.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client import REGISTRY

from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.exporter import Exporter
from mtpc.metrics.pages import Pages
from mtpc.metrics.tally import Counting

VARIABLE = "MTPC_METRICS"  # the folder, for the processes that this one starts
SHARED = "PROMETHEUS_MULTIPROC_DIR"
REMOVE = 'read -r nothing; rm -rf -- "$0"'
TO_RAY = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"  # vLLM's: names of variables that Ray's workers get as well
_watching: list[Popen[bytes]] = []  # kept: what they read from is closed with them


def show(args: Any) -> None:
    """In the process that reads vLLM's arguments: show what the processes after it will count, if vLLM counts.

    args: vLLM's ``EngineArgs``.
    """
    if args.disable_log_stats:
        os.environ.pop(VARIABLE, None)
    elif VARIABLE not in os.environ:
        os.environ[VARIABLE] = _folder().name
        os.environ[TO_RAY] = ",".join(filter(None, [os.environ.get(TO_RAY), VARIABLE]))


@cache
def _folder() -> TemporaryDirectory[str]:
    """One for all engines of this process; it is gone when that ends, in whatever way.

    A process that a signal ends, as a server's usually is, removes nothing itself.  A shell does, which reads from this
    process until there is nothing more to come.
    """
    folder = TemporaryDirectory(prefix="mtpc-metrics-")
    remove = ["sh", "-c", REMOVE, folder.name]
    _watching.append(Popen(remove, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True))
    REGISTRY.register(Pages(Path(folder.name)))
    return folder


def watched(rank: int) -> bool:
    """Whether this process counts: of tensor-parallel ranks the first one does."""
    return VARIABLE in os.environ and rank == 0


def count(vllm_config: Any, clock: DraftClock | None, tally: Counting | None) -> None:
    """Have what is counted shown from now on; labels are vLLM's own."""
    engine = str(vllm_config.parallel_config.data_parallel_index)
    labels = {"model_name": str(vllm_config.model_config.served_model_name), "engine": engine}
    page = None if SHARED in os.environ else Path(os.environ[VARIABLE], f"{engine}.prom")
    Exporter(labels, clock, tally, page).start()
