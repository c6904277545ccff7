"""Tries one row of `make test-gpu` in a process of its own, so that what breaks a device breaks no other row.

python -m tests.gpu.row NAME FOLDER [DEVICE] writes FOLDER/found.json, and what is printed is a log.
"""

from __future__ import annotations

import json
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from mtpc.errors import first_line
from mtpc.servers.server import tidy_end
from tests.gpu.rows import ROWS
from tests.gpu.running import NotRunError, Run

FOUND = "found.json"


class Held(StrEnum):
    """Whether a row did."""

    YES = "held"
    NO = "FAILED"
    UNTRIED = "not run"


class Found(NamedTuple):
    """What became of a row."""

    held: Held
    what: str


def tried(name: str, run: Run) -> Found:
    """What a row finds; what goes wrong in any way is no more than a row that did not hold."""
    try:
        return Found(Held.YES, ROWS[name].run(run))
    except NotRunError as reason:
        return Found(Held.UNTRIED, str(reason))
    except ModuleNotFoundError as missing:
        return Found(Held.UNTRIED, f"{missing.name} is not installed in the environment of {ROWS[name].engine}")
    except Exception as error:
        traceback.print_exc()
        return Found(Held.NO, f"{type(error).__name__}: {told(error)}")


def told(error: Exception) -> str:
    """Its line for a table: of a log that it quotes, the last one that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), first_line(error))


def main() -> None:
    """Of the command line."""
    name, folder, *device = sys.argv[1:]
    with tidy_end():
        found = tried(name, Run.of_environment(device[0] if device else "cuda", Path(folder)))
    (Path(folder) / FOUND).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
