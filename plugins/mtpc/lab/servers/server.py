"""A server process: started, waited for, and gone afterwards with all its children, also where this one is killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from random import SystemRandom
from types import FrameType
from typing import Annotated

from pydantic import BaseModel, Field

from mtpc.errors import MTPCError, first_line
from mtpc.files.config_model import declared_json
from mtpc.lab.servers import guard
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.metrics.draft_clock import VARIABLE

PORTS = range(20_000, 32_768)
START_SECONDS = 900.0
STOP_SECONDS = 20.0
AT_ONCE = 3  # servers that start
_ERROR = re.compile(r"(?:^|\s)((?:[\w.]*Error|Exception|error): .*)")


def free_port() -> int:
    """A TCP port of this machine that nothing listens on.

    It is one of those that Linux gives to no connection of its own: a server takes a while until it listens there.

    Errors: `MTPCError` where none of many is free.
    """
    for port in SystemRandom().sample(PORTS, 100):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise MTPCError("of 100 ports that were tried none is free for a server.")


def fetch(url: str, timeout: float = 10.0) -> str:
    """The text behind a URL.

    Errors: `MTPCError` when nothing answers there.
    """
    try:
        with urllib.request.urlopen(url, timeout=timeout) as reply:  # noqa: S310 (http of the user's own server)
            return str(reply.read().decode("utf-8"))
    except (OSError, ValueError, OverflowError, HTTPException) as error:
        raise MTPCError(f"{url} does not answer: {first_line(error)}.") from None


class Model(BaseModel):
    """A model that a server names."""

    id: str


class Models(BaseModel):
    """The models that a server names, its own first."""

    data: Annotated[list[Model], Field(min_length=1)]


class Server:
    """A running server.

    draft_times: where its adapter writes what drafting costs.  forgets: see `Engine`; None where nothing drafts from
    the texts of earlier requests.  plugin: whether it loads this project's; None where that is not known.
    """

    def __init__(
        self,
        url: str,
        command: list[str],
        draft_times: Path | None = None,
        forgets: Callable[[str], None] | None = None,
        plugin: bool | None = None,
    ) -> None:
        self.url = url
        self.command = command
        self.draft_times = draft_times
        self.forgets = forgets
        self.plugin = plugin

    def forget(self) -> None:
        """Before a measurement: draft from no text of before."""
        if self.forgets is not None:
            self.forgets(self.url)

    def metrics(self) -> str:
        """Its page of metrics."""
        return fetch(f"{self.url}/metrics")

    def model(self) -> str:
        """The name of the model it serves.

        Errors: `MTPCError` where nothing answers, or something else than a server of a model.
        """
        url = f"{self.url}/v1/models"
        return declared_json(Models, fetch(url).encode(), f"{url} names no model").data[0].id


class Launch:
    """A server that is on its way; `wait` until it answers, `stop` it whatever happens."""

    def __init__(self, engine: Engine, settings: ServerSettings, log: Path, draft_times: Path | None = None) -> None:
        port = free_port()
        self.log = log
        forgets = None if settings.ngram is None else engine.forgets
        url, command = f"http://127.0.0.1:{port}", engine.command(settings, port)
        self.server = Server(url, command, draft_times, forgets, settings.plugin)
        environment = {**os.environ, **engine.environment()}
        if not settings.plugin:
            environment |= engine.without_plugin()
        if draft_times is not None:
            environment[VARIABLE] = str(draft_times.resolve())
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", guard.__name__, *self.server.command],
                stdin=subprocess.PIPE,  # its end tells the guard that this process is no more
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def wait(self, seconds: float = START_SECONDS) -> Server:
        """The server, once it answers.

        Errors: `MTPCError` with the server's own last error when it ends, or when it takes too long.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise MTPCError(
                    f"the server ended with code {self.process.returncode} before it answered: "
                    f"{last_error(self.log)} (its log is {self.log})."
                )
            try:
                fetch(f"{self.server.url}/health", timeout=2.0)
                return self.server
            except MTPCError:
                time.sleep(0.5)
        raise MTPCError(f"the server did not answer within {seconds:.0f} s; its log is {self.log}.")

    def stop(self) -> None:
        """End the server and every process that it started."""
        for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        assert self.process.stdin is not None  # a pipe
        self.process.stdin.close()


@contextmanager
def tidy_end() -> Iterator[None]:
    """Let these signals end this process as an exception does, through every ``finally`` on the way.

    The first one alone: a second one, as of an impatient user, would break the tidying off.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def running(
    engine: Engine, settings: ServerSettings, log: Path, draft_times: Path | None = None
) -> Iterator[Callable[[], Server]]:
    """Start a server; what is yielded waits until it answers.  It is gone afterwards.

    Errors: `MTPCError`, see `Launch.wait`.
    """
    launch = Launch(engine, settings, log, draft_times)
    try:
        yield launch.wait
    finally:
        launch.stop()


@contextmanager
def side_by_side(
    engine: Engine, settings: Mapping[str, ServerSettings], out: Path, draft_times: bool = True
) -> Iterator[dict[str, Server]]:
    """Start servers side by side, by names, logs in ``out``; all are gone afterwards.

    Some start at a time: threads of many that compile wait for each other.

    draft_times: have the adapter time its drafting calls, into ``out``.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tidy_end(), ExitStack() as stack:
        starting: dict[str, Callable[[], Server]] = {}
        servers: dict[str, Server] = {}
        for name, one in settings.items():
            if len(starting) == AT_ONCE:
                first = next(iter(starting))
                servers[first] = starting.pop(first)()
            stem = re.sub(r"\W+", "-", name)
            times = out / f"draft_times_{stem}.json" if draft_times and one.drafter is not None else None
            if times is not None:
                times.unlink(missing_ok=True)
            starting[name] = stack.enter_context(running(engine, one, out / f"server_{stem}.log", times))
        yield servers | {name: answer() for name, answer in starting.items()}


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        match = _ERROR.search(line)
        if match:
            return match.group(1).rstrip(".")
    return lines[-1].rstrip(".") if lines else "it printed nothing"
