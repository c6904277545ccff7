r"""What only a GPU can show of this project, row by row, and one table of what held.

    python -m tests.gpu [--rows PATTERN ...] [--out DIR] [--list]

Every row is tried in a process of its own, for some minutes at most, in the environment of its engine: `--vllm` and
`--sglang` are how Python is started in each, as in --vllm "env PYTHONPATH=$HOME/vllm python3".  The table is written
anew after each row, with the rows' logs beside it.  TEST_GPU_VLLM (JSON, of ``vllm.LLM``) and TEST_GPU_SGLANG (words)
are arguments that all engines are started with besides.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from mtpc.console import console
from mtpc.provenance import hardware
from mtpc.servers.server import last_error
from mtpc.table import Table
from tests.gpu.row import FOUND, Found, Held
from tests.gpu.rows import ROWS

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for a row that took too long to end its servers
NO_GPU = "test-gpu: torch finds no CUDA device here, so there is nothing to try."


def chosen(patterns: Sequence[str]) -> list[str]:
    """Rows by name or with wildcards, in the order of the list; all without a pattern."""
    return [name for name in ROWS if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


def tried(name: str, start: Sequence[str], folder: Path, device: str, seconds: float) -> Found:
    """What a row finds in a process of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "log"
    command = [*start, "-m", "tests.gpu.row", name, str(folder), device]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Found(Held.NO, f"took longer than {seconds:.0f} s: {last_error(log)}")
        finally:
            ended(process)
    file = folder / FOUND
    if not file.exists():
        return Found(Held.NO, f"ended with code {process.returncode}: {last_error(log)}")
    held, what = json.loads(file.read_text())
    return Found(Held(held), what)


def ended(process: subprocess.Popen[bytes]) -> None:
    """With all that it started and did not end itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)


def table(found: dict[str, tuple[Found, float]]) -> Table:
    """One line for each row."""
    rows = [[name, row.held, row.what, f"{seconds:.0f}"] for name, (row, seconds) in found.items()]
    title = f"{hardware().get('gpu', 'a CPU')}, torch {torch.__version__}"
    return Table(title, ["row", "held?", "found", "s"], rows)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 1 where a row did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], metavar="PATTERN", help="as in 'vllm/*' (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "test-gpu")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--device", default="cuda", help="cpu: to try the rows that can be tried there")
    for engine in ("vllm", "sglang"):
        parser.add_argument(f"--{engine}", type=shlex.split, default=[sys.executable], metavar="COMMAND")
    options = parser.parse_args(given)
    names = chosen(options.rows)
    if options.list:
        print("\n".join(names))
        return 0
    if options.device == "cuda" and "gpu" not in hardware():
        print(NO_GPU)
        return 0
    found: dict[str, tuple[Found, float]] = {}
    for name in names:
        row, started = ROWS[name], time.monotonic()
        start, folder = getattr(options, row.engine), options.out / re.sub(r"\W+", "-", name)
        result = tried(name, start, folder.resolve(), options.device, row.seconds)
        found[name] = result, time.monotonic() - started
        print(f"{name}: {result.held}: {result.what}", flush=True)
        (options.out / "table.md").write_text(table(found).to_markdown())
    console().print(table(found).to_rich())
    return int(any(row.held is Held.NO for row, _ in found.values()))


if __name__ == "__main__":
    sys.exit(main())
