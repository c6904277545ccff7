"""Runs rows of cards: ``python -m tests.gpu.row NAME RUN.json`` runs one, and writes found.json next to that file.

The output is the row's log.  ``python -m tests.gpu.row --engine ENGINE FOLDER`` reads lines of such arguments from its
input.  It imports the engine once, as this takes longer than most rows, and runs each row in a forked process.  It
prints the exit code of each row.  ``FOLDER`` is for its own files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from mtpc.errors import first_line
from mtpc.files import provenance
from mtpc.lab.servers.server import exit_on_signals
from tests.gpu.cards import ROWS
from tests.gpu.checkout import put_on_the_path
from tests.gpu.loads import MODULES
from tests.gpu.running import LOG, NotRunError, Run

FOUND = "found.json"
ENGINES = ("vllm", "sglang")
# The engines contact no model hub and report no usage.  vLLM runs its engine in this process, and samples without
# FlashInfer, which compiles kernels on first use.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}


class Held(StrEnum):
    """Whether a row did."""

    YES = "held"
    NO = "FAILED"
    UNTRIED = "not run"
    STOPPED = "stopped"


class Found(NamedTuple):
    """What became of a row."""

    held: Held
    what: str


def tried(name: str, run: Run) -> Found:
    """What a row finds; what goes wrong in any way is no more than a row that did not hold."""
    engine = name.partition("/")[0]
    if engine in ENGINES and find_spec(engine) is None:
        return Found(Held.UNTRIED, f"{engine} is not installed here")
    try:
        return Found(Held.YES, ROWS[name].run(run))
    except NotRunError as reason:
        return Found(Held.UNTRIED, str(reason))
    except ModuleNotFoundError as missing:
        traceback.print_exc()
        return Found(Held.NO, f"{missing.name} is not installed in the environment of {ROWS[name].engine}")
    except Exception as error:
        traceback.print_exc()
        return Found(Held.NO, f"{type(error).__name__}: {error_line(error)}")


def error_line(error: Exception) -> str:
    """Its line for a table: of a log that it quotes, the last one that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), first_line(error))


def origin() -> dict[str, Any]:
    """What a result was found with: commit, versions, device, Python and time."""
    facts = provenance.collect()
    return {key: facts[key] for key in ("commit", "versions", "hardware", "python", "date")}


def prepare(folder: Path) -> None:
    """Of this process and those that it starts: variables, and where engines find this project."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    put_on_the_path(folder)


def run_row(name: str, run: Run) -> NoReturn:
    """Run one row and end this process."""
    with exit_on_signals():
        found = tried(name, run)
    (run.folder / FOUND).write_text(json.dumps({"held": found.held, "what": found.what, "origin": origin()}))
    sys.stdout.flush()
    os._exit(0)  # an engine in this process may leave threads that wait for each other


def run_forked(name: str, file: Path, anew: bool) -> NoReturn:
    """`run_row` in a process that has just been forked, in a session of its own; ``anew``: in a new Python."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(file.parent / LOG, os.O_WRONLY | os.O_CREAT)
    for stream, opened in enumerate((nothing, log, log)):
        os.dup2(opened, stream)
    if anew:
        os.execv(sys.executable, [sys.executable, "-m", "tests.gpu.row", name, str(file)])
    run_row(name, Run.load(file))


def run_rows(engine: str) -> None:
    """Run the rows that standard input names, with the engine imported once, as far as it can be."""
    for module in MODULES[engine]:
        with suppress(Exception):  # rows that need the module report the error
            import_module(module)
    for line in sys.stdin:
        name, _, file = line.strip().partition(" ")
        sys.stdout.flush()
        anew = torch.cuda.is_initialized()  # a forked process cannot use a device that this one has used
        row = os.fork()
        if not row:
            try:
                run_forked(name, Path(file), anew)
            finally:
                traceback.print_exc()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(row, 0)[1])
        with suppress(ProcessLookupError):
            os.killpg(row, signal.SIGKILL)  # what it left
        print(code, flush=True)


def main() -> None:
    """Of the command line."""
    words = sys.argv[1:]
    if words[0] == "--engine":
        prepare(Path(words[2]))
        run_rows(words[1])
    else:
        run = Run.load(Path(words[1]))
        prepare(run.folder / "metadata")
        run_row(words[0], run)


if __name__ == "__main__":
    main()
