"""Starts and stops `vllm serve`, and talks to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from prometheus_client.samples import Sample

from mtpc.lab.servers.prometheus import parse, total, totals_by
from mtpc.lab.servers.server import free_port
from mtpc.metrics.exporter import EVERY

NONE: Mapping[str, str] = {}
START_UP = 600.0  # seconds
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
ARGUMENTS = ("--enforce-eager", "--dtype", "float32", "--max-model-len", "512", "--served-model-name", "target")


def speculative_config(drafter: Path, drafts: int, **more: Any) -> tuple[str, str]:
    """The two command line arguments that switch a drafter on."""
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": drafts}
    return "--speculative-config", json.dumps(settings | {"draft_sample_method": "probabilistic"} | more)


def command(target: Path, *arguments: str) -> list[str]:
    """`vllm serve` of the environment that runs the tests."""
    return [str(Path(sys.executable).with_name("vllm")), "serve", str(target), *ARGUMENTS, *arguments]


class Server:
    """A running `vllm serve`; a context manager that leaves no process behind."""

    def __init__(
        self, target: Path, log: Path, *arguments: str, path: Sequence[Path] = (), variables: Mapping[str, str] = NONE
    ) -> None:
        self.port = free_port()
        self.log = log
        entries = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(entries)} | variables
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command(target, "--host", "127.0.0.1", "--port", str(self.port), *arguments),
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Server:
        deadline = time.monotonic() + START_UP
        try:
            while time.monotonic() < deadline and self.process.poll() is None:
                try:
                    with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=60):
                        return self
                except (URLError, OSError):
                    time.sleep(0.5)
        except BaseException:  # whoever waits is ended
            self.stop()
            raise
        self.stop()
        raise AssertionError(f"the server did not start:\n{self.log.read_text()[-4000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server's whole process group."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def complete(self, prompt: str | list[int] | list[str], **body: Any) -> dict[str, Any]:
        """Return completions of the prompts from /v1/completions, with token ids; greedy unless ``body`` changes it."""
        fixed = {"model": "target", "prompt": prompt, "temperature": 0, "return_token_ids": True}
        with self.post("/v1/completions", fixed | body) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def complete_all(self, prompts: Sequence[str | list[int]], together: int, **body: Any) -> list[dict[str, Any]]:
        """Completions in the order of the prompts, ``together`` of them at a time."""
        with ThreadPoolExecutor(together) as pool:
            return list(pool.map(lambda prompt: self.complete(prompt, **body), prompts))

    def post(self, route: str, body: dict[str, Any], timeout: float = 900) -> Any:
        """An open response."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return urlopen(Request(f"http://127.0.0.1:{self.port}{route}", data, headers), timeout=timeout)

    def metric(self, name: str) -> float:
        """The sum of a Prometheus metric over its labels."""
        return total(self.metrics(), name)

    def metrics(self) -> list[Sample]:
        """Its page of metrics."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return parse(answer.read().decode())

    def counted(self) -> dict[str, dict[str, float]]:
        """This project's metrics: what is accepted by position and by vocabulary, once all requests are shown."""
        time.sleep(EVERY + 0.5)
        page = self.metrics()
        accepted = "mtpc_accepted_tokens_total"
        return {label: totals_by(page, accepted, label) for label in ("position", "vocabulary")} | {
            "requests": totals_by(page, "mtpc_requests_total", "vocabulary"),
            "seconds": totals_by(page, "mtpc_drafting_part_seconds_total", "part"),
        }


def streamed(server: Server, body: dict[str, Any]) -> str:
    """The text of a completion that comes in pieces."""
    with server.post("/v1/completions", body | {"stream": True}) as stream:
        lines = [line.removeprefix(b"data: ") for line in stream if line.startswith(b"data: ")]
    assert lines[-1].strip() == b"[DONE]"
    return "".join(choice["text"] for line in lines[:-1] for choice in json.loads(line)["choices"])


def tokens(answer: dict[str, Any]) -> list[list[int]]:
    """Token ids of every choice."""
    return [choice["token_ids"] for choice in answer["choices"]]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """While several ranks run: one engine's tests at a time, because ranks wait for each other busily."""
    with (Path(tempfile.gettempdir()) / "mtpc-ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def processes_of_group(group: int) -> Iterator[int]:
    """Processes that still belong to a process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                yield int(entry.name)
