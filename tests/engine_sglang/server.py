"""Starts and stops `sglang.launch_server`, and talks to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mtpc.lab.servers.server import free_port
from mtpc.methods import method_of
from tests.engine.server import NONE, Server

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
RANKS = ("--tp-size", "2")
CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}  # one for each rank; else SGLang wants a NUMA node for each
ARGUMENTS = ("--dtype", "float32", "--context-length", "512", "--sleep-on-idle")
Answer = dict[str, Any]


def command(target: Path, *arguments: str) -> list[str]:
    """`sglang.launch_server` of the environment that runs the tests."""
    start = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(target)]
    return [*start, *ARGUMENTS, "--skip-server-warmup", *arguments]


def environment(path: Sequence[Path] = ()) -> dict[str, str]:
    """For a server; plugins in ``path`` are loaded before all others."""
    entries = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(entries)}


def drafting(drafter: Path, *arguments: str) -> tuple[str, ...]:
    """The command line arguments that switch a drafter on."""
    algorithm = method_of(drafter).algorithm
    return ("--speculative-algorithm", algorithm, "--speculative-draft-model-path", str(drafter), *arguments)


class SGLangServer(Server):
    """A running `sglang.launch_server`; a context manager that leaves no process behind."""

    def __init__(
        self, target: Path, log: Path, *arguments: str, path: Sequence[Path] = (), variables: Mapping[str, str] = NONE
    ) -> None:
        self.port, self.log = free_port(), log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command(target, "--host", "127.0.0.1", "--port", str(self.port), "--enable-metrics", *arguments),
                env=environment(path) | (CORES if RANKS[0] in arguments else {}) | variables,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the server's whole process group, at once: SGLang takes seconds to say goodbye."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def generate(
        self, prompt: str | list[str] | list[int], *, options: dict[str, Any] | None = None, **sampling: Any
    ) -> Any:
        """Post to SGLang's own /generate; greedy unless ``sampling`` changes it.

        prompt: a text, several, or the tokens of one.  options: further keys of the request body.  Returns an `Answer`,
        or a list of them where there are several texts or ``n`` is above 1.
        """
        parameters = {"temperature": 0, "max_new_tokens": 64} | sampling
        body = {"text" if isinstance(prompt[0], str) else "input_ids": prompt, "sampling_params": parameters}
        with self.post("/generate", body | (options or {})) as answer:
            return json.load(answer)

    def generate_all(self, prompts: Sequence[str | list[int]], together: int, **sampling: Any) -> list[Answer]:
        """Answers in the order of the prompts, ``together`` of them at a time."""
        with ThreadPoolExecutor(together) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, **sampling), prompts))


def texts(answers: Sequence[Answer]) -> list[list[int]]:
    """Token ids of each answer."""
    return [answer["output_ids"] for answer in answers]
