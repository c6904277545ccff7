"""Many starts of a server that are refused, each in a fork of one process that was refused itself: it imported all.

``python -m tests.support.starts MODULE`` reads command lines from its standard input and prints what became of them.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.engine.server import processes_of_group

LONGEST = 120.0  # seconds of a start that is to be refused
ROOT = Path(__file__).parents[2]


class Start(NamedTuple):
    """Exit code, standard error, and processes that were left."""

    code: int
    errors: str
    survivors: list[int]


def starts(module: str, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> list[Start]:
    """What becomes of ``python -m MODULE`` with each of these arguments."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.starts", module],
        input=json.dumps(commands),
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Start(*found) for found in json.loads(process.stdout.splitlines()[-1])]


def attempt(module: str, arguments: Sequence[str]) -> Start:
    """Run one of them in a forked process; kill it if it does not end in time."""
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(run(module, arguments))
        deadline = time.monotonic() + LONGEST
        ended, status = os.waitpid(child, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            time.sleep(0.05)
            ended, status = os.waitpid(child, os.WNOHANG)
        survivors = list(processes_of_group(child))
        if survivors:
            os.killpg(child, signal.SIGKILL)
        if not ended:
            _, status = os.waitpid(child, 0)
        errors.seek(0)
        return Start(os.waitstatus_to_exitcode(status), errors.read().decode(), survivors)


def run(module: str, arguments: Sequence[str]) -> int:
    """Run a module as Python does and return the exit code; `sys.excepthook` prints what is raised."""
    sys.argv, code = [module, *arguments], 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    name, commands = sys.argv[1], json.load(sys.stdin)
    run(name, commands[0])
    print(json.dumps([attempt(name, arguments) for arguments in commands]))
