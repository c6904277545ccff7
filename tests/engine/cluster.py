"""A cluster of Ray on this machine, of one node or of several, each with files and an environment of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mtpc.lab.servers.server import free_port
from tests.engine.server import ENVIRONMENT, NONE

START_UP = 300.0  # seconds
MARK = "MTPC_TEST_CLUSTER"  # a variable of all of a cluster's processes, whoever started them
OPEN = {"RAY_AUTH_MODE": "disabled"}  # a token of the user's would be asked for, but not sent by all
EAGER = {"RAY_worker_niceness": "0"}  # Ray's workers are nicer than all others by default, and wait
SMALL = ("--object-store-memory=100000000", "--num-cpus=2", "--include-log-monitor=false", "--disable-usage-stats")


class Cluster:
    """Nodes that have been started; `variables` are for a server that is to find them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{free_port()}"
        self.variables = OPEN | {"RAY_ADDRESS": self.address}

    def start(
        self, devices: int, path: Sequence[Path] = (), variables: Mapping[str, str] = NONE, prefix: Sequence[str] = ()
    ) -> None:
        """Add a node with `devices` "GPUs"; the first node is the head.  prefix: a command that runs Ray's command."""
        number = len(self.nodes) + 1
        port = self.address.partition(":")[2]
        where = ["--address", self.address] if self.nodes else ["--head", "--port", port, "--include-dashboard=false"]
        entries = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
        marked = {"PYTHONPATH": os.pathsep.join(entries), MARK: self.mark}
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", *where, *SMALL]
        with (self.folder / f"node{number}").open("w") as out:
            node = subprocess.Popen(
                [*prefix, *ray, f"--num-gpus={devices}", f"--node-ip-address=127.0.0.{number}",
                 f"--temp-dir={self.folder}"],
                env=os.environ | ENVIRONMENT | OPEN | EAGER | marked | variables,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.nodes.append(node)
        self._wait(self.folder / f"node{number}")

    def _wait(self, log: Path) -> None:
        deadline = time.monotonic() + START_UP
        while "Ray runtime started" not in log.read_text():
            assert self.nodes[-1].poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def processes(self) -> Iterator[int]:
        """All that belong to it, the workers of servers included."""
        mark = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


@contextmanager
def cluster() -> Iterator[Cluster]:
    """One without nodes, which leaves no process behind."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short: names of sockets may have 107 characters
    made = Cluster(Path(folder))
    try:
        yield made
    finally:
        while left := list(made.processes()):
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)
        for node in made.nodes:
            node.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
