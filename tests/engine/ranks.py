"""Servers of two tensor-parallel ranks that write down their drafts, by drafter and by what runs the second rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine.conftest import CAPACITY, Models
from tests.engine.server import Server, alone, speculative_config
from tests.support.on_ranks import METHODS, SIZE

SUPPORT = Path(__file__).parents[1] / "support"
PLUGINS = [SUPPORT / name for name in ("off_by_an_ulp", "recorded_drafts", "hybrid")]
WITH_RAY = [*PLUGINS, SUPPORT / "misstated_draft", SUPPORT / "ray_on_cpu"]
RANKS, CORES = ("--tensor-parallel-size", "2"), {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
FILES = {"RECORDED_DRAFTS": "drafts", "STATED_DRAFTS": "stated", "MISSTATED_DRAFTS": "misstate"}  # of plugins
TO_RAY = {"VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": ",".join(FILES)}
# Environment variables of a server by executor; None: the server has processes of its own.
EXECUTORS: dict[str, dict[str, str] | None] = {
    "": None,
    "ray": TO_RAY | {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"},
    "ray, compiled": TO_RAY | {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0"},
}


class Served(NamedTuple):
    """Two ranks, the models, settings of the draft vocabulary, and the folder with the file of the first rank's drafts.

    That of the second one's has ``.1`` after its name.
    """

    server: Server
    models: Models
    vocabulary: dict[str, Any]
    folder: Path


@contextmanager
def serving(
    method: str, executor: str, folder: Path, request: pytest.FixtureRequest, copied: int = 0
) -> Iterator[Served]:
    """The server of a drafter.  copied: tokens that a draft may go on with after the drafter's; 0: none is copied."""
    models, file = METHODS[method](folder)
    vocabulary = {} if file is None else {"vocabulary": str(file), "size": SIZE}
    copying = {"copy": True} if copied else {"adaptive": False}
    arguments = [*RANKS, *speculative_config(models.drafter, models.drafts + copied)]
    arguments += ["--additional-config", json.dumps({"mtpc": vocabulary | copying})]
    variables = {name: str(folder / file) for name, file in FILES.items()} | CORES
    if (environment := EXECUTORS[executor]) is not None:
        arguments += ["--distributed-executor-backend", "ray"]
        variables |= environment | request.getfixturevalue("ray").variables
    with (
        alone(),
        Server(models.target, folder / "log", *CAPACITY, *arguments, path=WITH_RAY, variables=variables) as server,
    ):
        yield Served(server, models, vocabulary, folder)
