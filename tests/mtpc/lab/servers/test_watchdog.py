"""Servers go with whoever started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_server.py"
ROOT = Path(__file__).parents[4]

# Part of a benchmark: it starts two servers, each with a child, prints a line when they answer, and waits.
STARTER = f"""
import signal, sys, time
from pathlib import Path
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under nohup
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.server import side_by_side
script = "sleep 300 & echo $! >> pids; echo $$ >> pids; exec {sys.executable} {FAKE} PORT"
engine = Engine("fake", "Fake", lambda settings, port: ["bash", "-c", script.replace("PORT", str(port))])
settings = dict.fromkeys(("one", "other"), ServerSettings(Path("target"), max_batch=4, max_length=512))
with side_by_side(engine, settings, Path(".")):
    print("answering", flush=True)
    time.sleep(300)
"""


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGTERM, 1), (signal.SIGINT, 3), (signal.SIGHUP, 1), (signal.SIGKILL, 1)]
)
def test_servers_are_gone_after_any_signal(number: signal.Signals, times: int, tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT / "plugins"), os.environ.get("PYTHONPATH", "")))
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert starter.stdout is not None
    try:
        assert starter.stdout.readline() == b"answering\n"
        processes = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert len(processes) == 4 and all(map(alive, processes))
        for _ in range(times):  # an impatient user's, too
            starter.send_signal(number)
            time.sleep(0.05)
        assert starter.wait(60) in (128 + number, -number)
        deadline = time.monotonic() + 60
        while any(map(alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(alive, processes))
    finally:
        starter.kill()
        starter.stdout.close()


WATCHDOG = "from mtpc.lab.servers import watchdog; watchdog.GRACE_SECONDS = 2.0; watchdog.main()"
# A server that ends at once, a child that ends half a second after SIGTERM, and one that ignores it.
SERVER = """
(trap 'sleep 0.5; touch ended; exit' TERM; touch ready; while true; do sleep 0.1; done) &
(trap '' TERM; echo $BASHPID > pid; while true; do sleep 0.1; done) &
until [ -e ready ] && [ -s pid ]; do sleep 0.05; done
echo answering
exec sleep 300
"""


def test_a_child_that_outlives_its_server_is_killed_after_its_grace(tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT / "plugins"), os.environ.get("PYTHONPATH", "")))
    started = subprocess.Popen(
        [sys.executable, "-c", WATCHDOG, "bash", "-c", SERVER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert started.stdin is not None and started.stdout is not None
    with started.stdin, started.stdout:
        assert started.stdout.readline() == b"answering\n"
        child = int((tmp_path / "pid").read_text())
        assert alive(child)
        started.stdin.close()  # as where the parent was killed
        try:
            started.wait(60)
            deadline = time.monotonic() + 10
            while alive(child) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not alive(child)
            assert (tmp_path / "ended").exists()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
