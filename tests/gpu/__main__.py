r"""Run the cards: checks of this project that need a GPU, each card one command of a few minutes.

    python -m tests.gpu --list                    the cards and their rows, with the seconds that are expected of each
    python -m tests.gpu load                      one card, by its name or number; several in turn
    python -m tests.gpu vllm --rows 'vllm/mtpc'   some rows of a card
    python -m tests.gpu core --device cpu         in miniature, where there is no GPU

A card ends within its time limit.  Its results are in --out: results.json, table.md, and log.txt with the logs of rows
that failed.  Only --again repeats a row that has a result there, so the same command continues a card that was stopped.
Every row runs in its own process, in the environment of its engine.  --vllm and --sglang are the commands that start
Python in each environment, as in --vllm "env PYTHONPATH=$HOME/vllm-site:plugins python3".
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mtpc.files.provenance import hardware
from mtpc.lab.console import console
from mtpc.lab.servers.server import exit_on_signals
from mtpc.lab.table import Table
from tests.gpu.cards import CARDS, ROWS, Card, card_of
from tests.gpu.row import ENGINES, FOUND, Held
from tests.gpu.running import LOG, ROOT, Paths, Run, kept
from tests.gpu.warm import PATIENCE, Warm

LEAST = 15.0  # seconds for a row to begin at all
IN_MINIATURE = 1800.0  # seconds of a card on a CPU, which may have other work as well
LOGGED = 150  # lines of a failed row's log
NO_GPU = "test-gpu: torch finds no CUDA device here, so there is nothing to try (--device cpu: in miniature)."
Result = dict[str, Any]


class Results:
    """What the rows have found, in a folder that is complete after every row."""

    def __init__(self, out: Path) -> None:
        self.out, self.file = out, out / "results.json"
        out.mkdir(parents=True, exist_ok=True)
        self.rows: dict[str, Result] = json.loads(self.file.read_text()) if self.file.exists() else {}

    def has(self, name: str) -> bool:
        """Whether a row has a result; one that was stopped or could not be tried has none."""
        return name in self.rows and self.rows[name]["held"] in (Held.YES, Held.NO)

    def add(self, name: str, result: Result, log: Path) -> None:
        """Write everything anew, with this row."""
        self.rows[name] = result
        self.file.write_text(json.dumps(self.rows, indent=1) + "\n")
        (self.out / "table.md").write_text("\n".join(table.to_markdown() for table in self.tables()))
        if result["held"] in (Held.NO, Held.STOPPED) and log.exists():
            lines = log.read_text(errors="replace").splitlines()[-LOGGED:]
            with (self.out / "log.txt").open("a") as file:
                file.write("\n".join([f"=== {name}: {result['found']}", *lines, "", ""]))

    def tables(self) -> list[Table]:
        """One line for each row, then what the cards make of their rows' figures."""
        lines = [
            [card.name, name, row["held"], row["found"], f"{row['seconds']:.0f}"]
            for card in CARDS
            for name in card.rows
            if (row := self.rows.get(name)) is not None
        ]
        title = f"{hardware().get('gpu', 'a CPU, in miniature')}, torch {torch.__version__}"
        made = [Table(title, ["card", "row", "held?", "found", "s"], lines)]
        for path in dict.fromkeys(card.table for card in CARDS if card.table):
            figures = {
                name: row["figures"]
                for card in CARDS
                for name in card.rows
                if card.table == path and (row := self.rows.get(name)) is not None and row["figures"]
            }
            if figures:
                module, function = path.split(":")
                made.append(getattr(import_module(module), function)(figures))
        return made


def tried(name: str, warm: Warm, run: Run) -> Result:
    """What a row finds in a process of its own, until its time is up."""
    shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir(parents=True)
    began = time.monotonic()
    found = warm.run(name, run)._asdict()
    file = run.folder / FOUND
    if file.exists():
        found = json.loads(file.read_text())
    return {
        "held": found["held"],
        "found": found["what"],
        "seconds": round(time.monotonic() - began, 1),
        "command": shlex.join(["python", "-m", "tests.gpu", *sys.argv[1:]]),
        **found.get("origin", {}),
        "figures": kept(run.folder),
    }


def listed() -> str:
    """Cards and rows, with the seconds that are expected of them on an H100."""
    lines = []
    for number, card in enumerate(CARDS, 1):
        lines.append(f"{number} {card.name} (at most {card.seconds:.0f} s): {card.question}")
        for name, row in card.rows.items():
            lines.append(f"    {name:34} {row.expected:4.0f} s{', also on a CPU' if row.on_cpu else ''}")
    return "\n".join(lines)


def chosen(card: Card, patterns: Sequence[str], on_cpu: bool) -> list[str]:
    """A card's rows by name or with wildcards, all without a pattern; on a CPU those that run there, or are named."""
    return [
        name
        for name, row in card.rows.items()
        if name in patterns
        or ((row.on_cpu or not on_cpu) and any(fnmatchcase(name, pattern) for pattern in patterns or ["*"]))
    ]


def run_card(
    card: Card, names: Sequence[str], options: argparse.Namespace, results: Results, warm: Mapping[str, Warm]
) -> None:
    """Rows in turn, until the card's time is up."""
    end = time.monotonic() + (options.seconds or (card.seconds if options.device == "cuda" else IN_MINIATURE))
    for name in names:
        if results.has(name) and not options.again:
            continue
        left = end - time.monotonic() - PATIENCE / 2
        if left < LEAST:
            print(f"{name}: no time left; the same command goes on here", flush=True)
            continue
        folder = (options.work / re.sub(r"\W+", "-", name)).resolve()
        run = Run(
            device_name=options.device, folder=folder, out=options.out.resolve(), seconds=left, paths=paths(options),
            vllm=options.vllm_args, sglang=options.sglang_args,
        )  # fmt: skip
        result = tried(name, warm[ROWS[name].engine], run)
        results.add(name, result, folder / LOG)
        print(f"{name}: {result['held']}: {result['found']}", flush=True)


def paths(options: argparse.Namespace) -> Paths:
    """Those that were named, absolute; the others as they are by default."""
    named = {key: getattr(options, key) for key in Paths.model_fields if getattr(options, key) is not None}
    return Paths(**{key: path.resolve() for key, path in named.items()})


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        "python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("cards", nargs="*", metavar="CARD", help="name or number (default: all)")
    made.add_argument("--rows", nargs="*", default=[], metavar="PATTERN", help="only these rows, as in 'vllm/*'")
    made.add_argument("--list", action="store_true", help="list cards and rows, and end")
    made.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu", help="folder of the results")
    made.add_argument("--work", type=Path, default=ROOT / "runs" / "gpu-work", help="folder of the rows' own files")
    made.add_argument("--again", action="store_true", help="run rows that have a result again")
    made.add_argument("--seconds", type=float, help="end a card after this time (default: what --list says)")
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: in miniature")
    for key, what in (
        ("weights", "the folder of what ships"), ("chat", "the chat target"), ("prompts", "prompts of cards on speed"),
        ("questions", "questions to answer for training"), ("data", "conversations to train on"),
    ):  # fmt: skip
        made.add_argument(f"--{key}", type=Path, help=what)
    for engine in ("vllm", "sglang"):
        made.add_argument(f"--{engine}", type=shlex.split, default=[sys.executable], metavar="COMMAND")
    made.add_argument("--vllm-args", type=json.loads, default={}, metavar="JSON", help="more arguments of EngineArgs")
    made.add_argument("--sglang-args", type=shlex.split, default=[], metavar="WORDS", help="more of SGLang's options")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 1 where a row that was run did not hold."""
    options = parser().parse_args(given)
    if options.list:
        print(listed())
        return 0
    cards = [card_of(word) for word in options.cards] if options.cards else list(CARDS)
    if None in cards:
        print(f"test-gpu: the cards are {', '.join(card.name for card in CARDS)}, or their numbers.", file=sys.stderr)
        return 2
    if options.device == "cuda" and "gpu" not in hardware():
        print(NO_GPU)
        return 0
    folder = options.work.resolve() / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    held = (folder / "lock").open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"test-gpu: another run uses {options.work}; wait for its end, or name another --work.", file=sys.stderr)
        return 2
    results, names = Results(options.out), []
    warm = {engine: Warm(engine, getattr(options, engine), folder) for engine in ENGINES}
    with exit_on_signals(), ExitStack() as ends:
        for each in warm.values():
            ends.enter_context(closing(each))
        for card in filter(None, cards):
            some = chosen(card, options.rows, options.device == "cpu")
            names += some
            run_card(card, some, options, results, warm)
    for table in results.tables():
        console().print(table.to_rich())
    return int(any(results.rows.get(name, {}).get("held") == Held.NO for name in names))


if __name__ == "__main__":
    sys.exit(main())
