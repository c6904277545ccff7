"""Processes that have imported an engine and run rows, and the end of a row with all that it started."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from mtpc.lab.servers.server import last_error
from tests.gpu.row import Found, Held
from tests.gpu.running import LOG, ROOT, Run

UNCOMPILED = "PYTHONDONTWRITEBYTECODE"  # Docker images set it; an engine's import then takes 20 s in every process
PATIENCE = 20.0  # seconds for a row that is stopped to end its servers


class Warm:
    """`tests.gpu.row` for the rows of one engine; started with the first of them, and anew where it has ended.

    start: how Python is started in the engine's environment.  folder: for its own files.
    """

    def __init__(self, engine: str, start: Sequence[str], folder: Path) -> None:
        self.command = [*start, "-m", "tests.gpu.row", "--engine", engine, str(folder)]
        self.log = folder / f"{engine}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, name: str, run: Run) -> Found:
        """Run a row, for as long as it may.

        Returns: what became of it where it has written nothing itself.
        """
        process = self._started()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{name} {run.save()}\n".encode())
        try:
            code = self._read_exit_code(process, run.seconds)
        except BaseException:
            self._end_row(process)
            raise
        log = run.folder / LOG
        if not log.exists():
            shutil.copy(self.log, log)
        if code is None:
            self._end_row(process)
            return Found(Held.STOPPED, f"after {run.seconds:.0f} s: {last_error(log)}")
        return Found(Held.NO, f"ended with code {code or process.wait()}: {last_error(log)}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("w") as log:
                self._process = subprocess.Popen(
                    self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
                    env={name: value for name, value in os.environ.items() if name != UNCOMPILED},
                )  # fmt: skip
        return self._process

    @staticmethod
    def _read_exit_code(process: subprocess.Popen[bytes], seconds: float) -> str | None:
        """A row's exit code; empty where the process has ended, None where neither has happened in time."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        return process.stdout.readline().decode().strip() if ready else None

    def _end_row(self, process: subprocess.Popen[bytes]) -> None:
        """With all that it started and did not end itself, also where that is in a session of its own."""
        started: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
            for row in psutil.Process(process.pid).children():
                with suppress(ProcessLookupError):
                    os.killpg(row.pid, signal.SIGTERM)
        if self._read_exit_code(process, PATIENCE) is None:  # no row, or one that does not end
            self.close()
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()
