"""Exports draft metrics on vLLM's own ``/metrics`` page.

The first process serves the page, but worker processes draft.  Workers write their counters into a folder, which the
first process reads on each scrape.  Where several processes serve the page, `prometheus_client` has such a folder.

Protocol: `enable` in the first process, then `enabled` and `export` in the workers.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client import REGISTRY

from mtpc.methods.drafter import draft_language
from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.exporter import NO_INFO, Exporter
from mtpc.metrics.pages import Pages
from mtpc.metrics.tally import TallySource
from vllm_mtpc.additional_config import uses_prompt_lookup, vocabulary_values
from vllm_mtpc.dispatch import drafter_of, folder_of

VARIABLE = "MTPC_METRICS"  # the folder, inherited by the processes that this one starts
PROMETHEUS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
REMOVE = 'read -r nothing; rm -rf -- "$0"'
RAY_VARIABLES = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"  # vLLM's: names of variables to copy to Ray workers
_cleaners: list[Popen[bytes]] = []  # a reference keeps their standard input open


def enable(args: Any) -> None:
    """Make the processes that this one starts count, unless vLLM's own statistics are off.

    Args:
        args: vLLM's ``EngineArgs``.
    """
    if args.disable_log_stats:
        os.environ.pop(VARIABLE, None)
    elif VARIABLE not in os.environ:
        os.environ[VARIABLE] = _folder().name
        os.environ[RAY_VARIABLES] = ",".join(filter(None, [os.environ.get(RAY_VARIABLES), VARIABLE]))


@cache
def _folder() -> TemporaryDirectory[str]:
    """Create the folder, one for all engines of this process; it is removed when the process ends, even by a signal.

    A shell removes it: its standard input is a pipe from this process, which closes when the process ends.
    """
    folder = TemporaryDirectory(prefix="mtpc-metrics-")
    remove = ["sh", "-c", REMOVE, folder.name]
    _cleaners.append(Popen(remove, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True))
    REGISTRY.register(Pages(Path(folder.name)))
    return folder


def enabled(rank: int) -> bool:
    """Return whether this process counts, which only the first tensor-parallel rank does.

    Args:
        rank: This process's tensor-parallel rank.
    """
    return VARIABLE in os.environ and rank == 0


def export(vllm_config: Any, clock: DraftClock | None, tally: TallySource | None) -> None:
    """Start to export counters, with the labels of vLLM's metrics.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
        clock: Times of drafting; None for vLLM's own drafters.
        tally: Draft tokens by draft vocabulary; None where there is no choice of vocabularies.
    """
    engine = str(vllm_config.parallel_config.data_parallel_index)
    labels = {"model_name": str(vllm_config.model_config.served_model_name), "engine": engine}
    page = None if PROMETHEUS_FOLDER in os.environ else Path(os.environ[VARIABLE], f"{engine}.prom")
    Exporter(labels, clock, tally, page, NO_INFO if clock is None else drafter_info(vllm_config)).start()


def drafter_info(vllm_config: Any) -> dict[str, str]:
    """Return the labels of `mtpc.metrics.exporter.INFO`.

    Args:
        vllm_config: vLLM's ``VllmConfig`` with a drafter of this project.
    """
    speculative, additional = vllm_config.speculative_config, vllm_config.additional_config
    method, config = drafter_of(vllm_config)
    return {
        "drafter": str(speculative.model),
        "method": method.name,
        "num_drafts": str(speculative.num_speculative_tokens),
        "copy": str(uses_prompt_lookup(additional, not config.own_drafts)).lower(),
        "language": draft_language(vocabulary_values(additional), folder_of(vllm_config), method, config),
        "draft_sample_method": speculative.draft_sample_method,
    }
