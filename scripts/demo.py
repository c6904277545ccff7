"""`make demo` and `make demo-sglang`: the same server without and with a drafter, side by side in the terminal.

Starts both, streams a few completions from the one with the drafter, then measures both in turn; so for every pair of
a target and a drafter. A target with a chat template is asked questions, any other is given text to go on with. With
--copying a chat model is asked for what repeats its prompt, and the drafter copies. What is measured goes into
OUT/DRAFTER, as `mtpc bench` writes it.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.rule import Rule
from transformers import AutoTokenizer

from mtpc.errors import MTPCError
from mtpc.lab.bench import report
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER
from mtpc.lab.bench.run import run_plan
from mtpc.lab.bench.settings import BenchPlan
from mtpc.lab.servers.connection import Connection
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server, side_by_side
from mtpc.lab.servers.speculation import resolve_num_drafts
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.prompts import SHIPPED, Prompt, read_prompts
from mtpc.processor import float32_advice

MAX_LENGTH = 1024
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@dataclass(frozen=True)
class Programme:
    """What a target is asked.

    shown: titles, texts and temperatures of what is streamed.  prompts: what is measured.  arguments: of the server
    with the drafter.  drafts: of a step, at most; None: those that it was trained for.
    """

    shown: tuple[tuple[str, str, float], ...]
    shown_tokens: int
    prompts: Path
    plan: BenchPlan
    arguments: tuple[str, ...] = ()
    drafts: int | None = None


TEXT = Programme(
    (
        ("prose, greedy", "And it came to pass, when the king heard these words,", 0.0),
        ("prose, temperature 0.8", "HAMLET. ", 0.8),
        ("code, greedy", "class Counter:\n    def __init__(self, values):\n", 0.0),
    ),
    200,
    SHIPPED,
    BenchPlan(batch_sizes=(1,), temperatures=(0.0, 1.0), max_tokens=256, rounds=2, requests=4),
)
CHAT = Programme(
    (
        ("a question, greedy", "Why is the sky blue? Answer in three sentences.", 0.0),
        ("French, temperature 0.8", "Quels sont les trois plus grands pays du monde ?", 0.8),
    ),
    120,
    BENCHMARKS / "chat_prompts.jsonl",
    BenchPlan(batch_sizes=(1,), temperatures=(0.0, 1.0), max_tokens=96, rounds=2, requests=4),
)
HOURS = (
    "Opening hours in 2026: Monday to Friday from 8 in the morning to 6 in the evening, Saturday from 9 in the morning "
    "to 1 in the afternoon. On Sundays and on public holidays in 2026 the shop is closed."
)
COPYING = Programme(
    (
        (
            "a text to change, greedy",
            f"Change the year to 2027 and give me the whole text again.\n\n{HOURS}",
            0.0,
        ),
    ),
    120,
    BENCHMARKS / "copy_prompts.jsonl",
    BenchPlan(batch_sizes=(1,), temperatures=(0.0,), max_tokens=128, rounds=1, requests=12),
    ("--additional-config", '{"mtpc": {"copy": true}}'),
    10,
)


async def stream(server: Server, prompt: Prompt, sampling: CompletionParams, console: Console) -> None:
    """Print one completion as it comes."""
    body = sampling.body(server.model(), prompt)
    async with Connection(server.url) as connection:
        async for event in connection.events(body):
            if event.get("choices"):
                console.print(event["choices"][0]["text"], end="", markup=False, highlight=False)
    console.print()


def demonstrate(engine: Engine, target: Path, drafter: Path, copying: bool, out: Path, console: Console) -> None:
    """Start, show, measure.

    Errors: `MTPCError` for a folder that is wrong or a server that does not start.
    """
    if not (target / "config.json").is_file():
        raise MTPCError(f"{target} is not a model folder: it has no config.json.")
    chat = ChatTemplate(target) if AutoTokenizer.from_pretrained(target).chat_template else None
    if copying and chat is None:
        raise MTPCError(f"{target} is no chat model, but what is asked with --copying is for one.")
    programme = COPYING if copying else TEXT if chat is None else CHAT
    drafts = programme.drafts or resolve_num_drafts(drafter, None)
    common: tuple[str, ...] = ("--dtype", "float32") if float32_advice() else ()
    if engine.name == "vllm" and not torch.cuda.is_available():
        common += ("--enforce-eager",)  # compiling takes minutes of each server's start, and brings little on a CPU
    plain = ServerSettings(target, 1, MAX_LENGTH, extra=common, plugin=False)  # the engine as it is released
    drafted = ServerSettings(target, 1, MAX_LENGTH, drafter, drafts, (*common, *programme.arguments))
    prompts = [prompt for prompt, _ in read_prompts(programme.prompts, target)]
    with tempfile.TemporaryDirectory(prefix="mtpc-demo-") as folder:
        how = f"{drafter}, which copies" if copying else str(drafter)
        console.print(f"Starting {engine.title} twice on {target}: without a drafter, and with {how} ...")
        with side_by_side(engine, {NO_DRAFTER: plain, DRAFTER: drafted}, Path(folder)) as servers:
            for title, text, temperature in programme.shown:
                console.print(Rule(f"{title}, streamed from the server with the drafter", align="left"))
                console.print(text, style="dim", end="" if chat is None else "\n", markup=False, highlight=False)
                prompt = text if chat is None else chat.question(text)
                sampling = CompletionParams(programme.shown_tokens, temperature, ignore_eos=chat is None)
                asyncio.run(stream(servers[DRAFTER], prompt, sampling, console))
            plan = programme.plan
            number = plan.measurements(len(servers))
            console.print(Rule(f"{number} measurements, without and with in turn", align="left"))
            points = run_plan(engine, servers, prompts, plan, lambda name, _: console.print(name, highlight=False))
    commands = [shlex.join(server.command) for server in servers.values()]
    notes = report.draftless_notes(points)
    report.write(
        out, points, {"plan": asdict(plan), "prompts": str(programme.prompts.name), "servers": commands}, notes
    )
    report.show(points, console, notes)


def main() -> int:
    """Exit code 2 with one sentence when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="vllm")
    names = ("TARGET", "DRAFTER")
    parser.add_argument("--pair", type=Path, nargs=2, action="append", required=True, metavar=names)
    parser.add_argument("--copying", type=Path, nargs=2, action="append", default=[], metavar=names, help="vLLM alone")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    arguments = parser.parse_args()
    console = Console()
    try:
        engine = find_engine(arguments.engine)
        must_be_installed(engine)
        for target, drafter in arguments.pair:
            demonstrate(engine, target, drafter, False, arguments.out / drafter.name, console)
        for target, drafter in arguments.copying:
            demonstrate(engine, target, drafter, True, arguments.out / f"{drafter.name}-copying", console)
    except MTPCError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console.print("Speedup: tokens/s with / without, one request at a time.  `mtpc bench` measures more batch sizes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
