"""Runs one row of a card in this process: ``python -m tests.gpu.row NAME RUN.json`` writes found.json beside that file.

What is printed is the row's log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from mtpc import provenance
from mtpc.errors import first_line
from mtpc.servers.server import tidy_end
from tests.gpu.cards import ROWS
from tests.gpu.checkout import put_on_the_path
from tests.gpu.running import NotRunError, Run

FOUND = "found.json"
ENGINES = ("vllm", "sglang")
# The engines neither ask a model hub nor report home; vLLM runs its engine in this process, and SGLang's and vLLM's
# sampling need no library that compiles kernels on first use.
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
        return Found(Held.NO, f"{type(error).__name__}: {told(error)}")


def told(error: Exception) -> str:
    """Its line for a table: of a log that it quotes, the last one that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), first_line(error))


def origin() -> dict[str, Any]:
    """What a result was found with: commit, versions, device, Python and time."""
    facts = provenance.collect()
    return {key: facts[key] for key in ("commit", "versions", "hardware", "python", "date")}


def main() -> None:
    """Of the command line."""
    name, file = sys.argv[1], Path(sys.argv[2])
    run = Run.load(file)
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    put_on_the_path(run.folder / "metadata")
    with tidy_end():
        found = tried(name, run)
    (run.folder / FOUND).write_text(json.dumps({"held": found.held, "what": found.what, "origin": origin()}))
    sys.stdout.flush()
    os._exit(0)  # an engine in this process may leave threads that wait for each other


if __name__ == "__main__":
    main()
