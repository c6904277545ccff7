"""Server processes: start them, wait for them, and end them with all their children, also when this process dies."""

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
from mtpc.files.config_model import validated_json
from mtpc.lab.servers import watchdog
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.metrics.draft_clock import VARIABLE

PORTS = range(20_000, 32_768)
START_SECONDS = 900.0
STOP_SECONDS = 20.0
MAX_STARTING = 3  # servers that start at the same time
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy, as `connection.Connection`
_ERROR = re.compile(r"(?:^|\s)((?:[\w.]*Error|Exception|error): .*)")


def free_port() -> int:
    """Find a TCP port of this machine that nothing listens on.

    The port is outside of the range that Linux assigns to outgoing connections, so it stays free until the server
    listens.

    Returns:
        The port.

    Raises:
        MTPCError: 100 random ports are all in use.
    """
    for port in SystemRandom().sample(PORTS, 100):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise MTPCError(f"no port is free for a server: 100 from {PORTS[0]} to {PORTS[-1]} were tried. Stop other servers.")


def fetch(url: str, timeout: float = 10.0) -> str:
    """Fetch the text at a URL, without the proxy of the environment (``http_proxy``).

    Args:
        url: The address.
        timeout: Seconds to wait.

    Returns:
        The body of the response.

    Raises:
        MTPCError: Nothing answers, or the status is an error.
    """
    try:
        with _OPENER.open(url, timeout=timeout) as reply:
            return str(reply.read().decode("utf-8"))
    except urllib.error.HTTPError as error:
        raise MTPCError(f"{url} does not answer: {first_line(error)}.") from None
    except urllib.error.URLError as error:
        raise MTPCError(f"{url} does not answer, check that the server runs: {error.reason}.") from None
    except (OSError, ValueError, OverflowError, HTTPException) as error:
        raise MTPCError(f"{url} does not answer: {first_line(error)}.") from None


def base_url(url: str) -> str:
    """Return a server's address without the path of its API, ``/v1``, which clients of OpenAI's API add.

    Args:
        url: The address as the user typed it.
    """
    return url.rstrip("/").removesuffix("/v1")


class Model(BaseModel):
    """An entry of ``/v1/models``."""

    id: str


class Models(BaseModel):
    """The response of ``/v1/models``, the served model first."""

    data: Annotated[list[Model], Field(min_length=1)]


class Server:
    """A running server.

    Args:
        url: Its address.
        command: The command that started it; empty for a server that the user started.
        draft_times: File into which its adapter writes the time spent on drafting.
        clear_history: See `Engine`; None where no drafter uses the outputs of earlier requests.
        plugin: Whether it loads this project's plugin; None where that is not known.
    """

    def __init__(
        self,
        url: str,
        command: list[str],
        draft_times: Path | None = None,
        clear_history: Callable[[str], None] | None = None,
        plugin: bool | None = None,
    ) -> None:
        self.url = url
        self.command = command
        self.draft_times = draft_times
        self._clear_history = clear_history
        self.plugin = plugin

    def clear_history(self) -> None:
        """Clear the outputs of earlier requests, before a measurement."""
        if self._clear_history is not None:
            self._clear_history(self.url)

    def metrics(self) -> str:
        """Return its page of metrics."""
        return fetch(f"{self.url}/metrics")

    def model(self) -> str:
        """Return the name of the served model.

        Raises:
            MTPCError: Nothing answers, or the response lists no model.
        """
        url = f"{self.url}/v1/models"
        return validated_json(Models, fetch(url).encode(), f"{url} lists no model").data[0].id


class Launch:
    """A server that was started: call `wait` until it answers, and `stop` in any case."""

    def __init__(self, engine: Engine, settings: ServerSettings, log: Path, draft_times: Path | None = None) -> None:
        port = free_port()
        self.log = log
        clear_history = None if settings.ngram is None else engine.clear_history
        url, command = f"http://127.0.0.1:{port}", engine.command(settings, port)
        self.server = Server(url, command, draft_times, clear_history, settings.plugin)
        environment = {**os.environ, **engine.environment(settings)}
        if not settings.plugin:
            environment |= engine.without_plugin()
        if draft_times is not None:
            environment[VARIABLE] = str(draft_times.resolve())
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", watchdog.__name__, *self.server.command],
                stdin=subprocess.PIPE,  # it closes when this process ends, see `watchdog`
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def wait(self, seconds: float = START_SECONDS) -> Server:
        """Wait until the server answers.

        Args:
            seconds: Longest time to wait.

        Returns:
            The server.

        Raises:
            MTPCError: The server ended, with the last error of its log, or took too long.
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
        """End the server and all processes that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        assert self.process.stdin is not None  # a pipe
        self.process.stdin.close()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit through every ``finally`` when a signal ends this process, so that its servers are stopped.

    SIGTERM, SIGINT and SIGHUP raise `SystemExit` inside of the context, except those that this process ignores already,
    as under ``nohup``.  Later signals are ignored: they would interrupt the cleanup.

    Yields:
        None.
    """
    possible = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    numbers = [number for number in possible if signal.getsignal(number) is not signal.SIG_IGN]

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
    """Run a server for as long as the context is active.

    Args:
        engine: The engine.
        settings: Settings of the server.
        log: File for its output.
        draft_times: File into which its adapter writes the time spent on drafting; None to not time it.

    Yields:
        A function that waits until the server answers and returns it, see `Launch.wait`.
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
    """Run several servers for as long as the context is active.

    At most `MAX_STARTING` start at the same time, because compiling threads of many servers block each other.

    Args:
        engine: The engine.
        settings: Settings by the name of a server.
        out: Folder for logs and times.
        draft_times: Whether servers with a drafter time their drafting calls.

    Yields:
        The running servers by name.

    Raises:
        MTPCError: A server does not start.
    """
    out.mkdir(parents=True, exist_ok=True)
    with exit_on_signals(), ExitStack() as stack:
        starting: dict[str, Callable[[], Server]] = {}
        servers: dict[str, Server] = {}
        for name, one in settings.items():
            if len(starting) == MAX_STARTING:
                first = next(iter(starting))
                servers[first] = starting.pop(first)()
            stem = re.sub(r"\W+", "-", name)
            times = out / f"draft_times_{stem}.json" if draft_times and one.drafter is not None else None
            if times is not None:
                times.unlink(missing_ok=True)
            starting[name] = stack.enter_context(running(engine, one, out / f"server_{stem}.log", times))
        yield servers | {name: answer() for name, answer in starting.items()}


def last_error(log: Path) -> str:
    """Return the last line of a log that names an error, or else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        match = _ERROR.search(line)
        if match:
            return match.group(1).rstrip(".")
    return lines[-1].rstrip(".") if lines else "it printed nothing"
