r"""Tokens per decoding step and tokens/s of outputs that resemble an earlier text, with and without predicted outputs.

    mtpc train copying --target runs/qwen05 --num-drafts 16 --out runs/copying
    python -m benchmarks.predicted_outputs --target runs/qwen05 --prompts HumanEval.jsonl --ngram 2-4:16 \
        --drafter lookup=runs/copying --out runs/predicted-outputs
    python -m benchmarks.predicted_outputs --target runs/smollm2 --prompts spec_bench_even.jsonl --ngram 2-4:10 \
        --drafter hybrid=weights/smollm2-fastmtp --drafts hybrid=10 --tenants \
        '--drafter-arg=hybrid=--additional-config={"mtpc": {"copy": true, "store": 16384}}' --out runs/again

With HumanEval's file, each request asks the target to write a function again under another name.  Its prediction is the
unchanged function.  "correct" counts the outputs that contain the renamed function.

With a file of user turns, each question is asked again with other instructions in the system prompt.  Its prediction
is the target's output without them, which the prompt does not hold.  With --tenants, drafters also generate that
output themselves, and may copy it in a request of the same tenant; this needs the setting ``store``.

All servers run at once and complete the same requests in turn, at concurrency 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.in_turn import WARM_UP, in_order
from benchmarks.speed_contestants import add_arguments, contestants
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import validated_json
from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.bench.results import measurement_to_json, rate, tokens_per_step
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server, side_by_side
from mtpc.lab.table import Table
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.prompts import Prompt, read_user_turns
from mtpc.prompt_lookup.prediction import PREDICTION
from vllm_mtpc.additional_config import TENANT

PARAMETERS = {"vllm": "vllm_xargs", "sglang": "custom_params"}  # request fields for predictions, by engine
CHARACTERS = range(300, 1500)  # lengths of the functions that are used
INSTRUCTIONS = "You are a helpful and friendly assistant."  # system prompt of the questions that are asked again
PREDICTED, STORED = ", with prediction", ", with the tenant's earlier output"


class Problem(BaseModel):
    """A line of HumanEval's file, without the fields that are not needed."""

    prompt: str
    canonical_solution: str
    entry_point: str


class Edit(NamedTuple):
    """A change of code.

    Attributes:
        request: User turn.
        before: The code before the edit.
        after: The code after a correct edit.
    """

    request: str
    before: str
    after: str


class Task(NamedTuple):
    """A request whose output resembles an earlier text.

    Attributes:
        prompt: Tokens of its prompt.
        earlier: Text that its output resembles, or the prompt to whose output that applies.
        correct: Part of every correct output; None: unknown.
    """

    prompt: list[int]
    earlier: str | list[int]
    correct: str | None = None


@dataclass(frozen=True)
class PredictedParams(CompletionParams):
    """Parameters of requests with additional fields.

    Attributes:
        fields: Names and values of these fields.
    """

    fields: tuple[tuple[str, Any], ...] = ()

    def body(self, model: str, prompt: Prompt) -> dict[str, Any]:
        """Return the JSON of a request, see `CompletionParams.body`."""
        return super().body(model, prompt) | dict(self.fields)


def read_edits(file: Path, count: int) -> list[Edit]:
    """Make ``count`` edits of functions that are spread over HumanEval's file.

    Raises:
        MTPCError: The file or a line cannot be read, or there are fewer functions of a fitting length.
    """
    try:
        lines = [line for line in file.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise MTPCError(f"--prompts {file} cannot be read: {error}.") from None
    expected = f"{file} is not HumanEval's file of problems"
    edits = [edit for edit in (_edit(validated_json(Problem, line, expected)) for line in lines) if edit]
    if len(edits) < count:
        raise MTPCError(f"--count is {count}, but {file} has {len(edits)} functions of a fitting length.")
    return [edits[number * len(edits) // count] for number in range(count)]


def _edit(problem: Problem) -> Edit | None:
    code, name = (problem.prompt + problem.canonical_solution).strip(), problem.entry_point
    if len(code) not in CHARACTERS:
        return None
    other = f"{name}_of_values"
    request = (
        f"Rename the function `{name}` to `{other}` in this Python file. "
        f"Write the whole file again, and change nothing else.\n\n```python\n{code}\n```"
    )
    return Edit(request, code, code.replace(name, other))


def read_tasks(file: Path, target: Path, count: int) -> list[Task]:
    """Make ``count`` tasks: edits of HumanEval's functions, or questions that are asked again.

    Raises:
        MTPCError: As `read_edits` and `mtpc.lab.text.prompts.read_user_turns`, or there are fewer questions.
    """
    template = ChatTemplate(target)
    turns = read_user_turns(file)
    if not turns:
        edits = read_edits(file, count)
        return [Task(template.question(edit.request), edit.before, edit.after) for edit in edits]
    if len(turns) < count:
        raise MTPCError(f"--count is {count}, but {file} has {len(turns)} questions.")
    users = [turns[number * len(turns) // count] for number in range(count)]
    return [Task(template.question(user, INSTRUCTIONS), template.question(user)) for user in users]


def ask(given: argparse.Namespace, tasks: Sequence[Task]) -> dict[str, list[Measurement]]:
    """Start all servers, and return their outputs by name; those of drafters in each of the ways that are compared."""
    engine = find_engine(given.engine)
    must_be_installed(engine)
    if given.tenants and (engine.name != "vllm" or any(isinstance(task.earlier, str) for task in tasks)):
        raise MTPCError("--tenants needs vLLM and a file of user turns: omit it for SGLang and for code edits.")
    prompts = [prompt for task in tasks for prompt in (task.prompt, task.earlier) if not isinstance(prompt, str)]
    measured = list(contestants(given, engine, max(map(len, prompts))))
    settings = {one.name: engine.as_released(one.settings, one.temperatures) for one in measured}
    drafters = {one.name for one in measured if one.settings.drafter is not None}
    found: dict[str, list[Measurement]] = {}

    def output(server: Server, prompt: Prompt, **parameters: str) -> Measurement:
        """Measure one request after a warm-up; by then an engine has stored the output of the request before.

        An engine's n-gram drafter has its history cleared in between: else it would draft from the warm-up's output.
        """
        fields = ((PARAMETERS[engine.name], parameters),) if parameters else ()
        sampling = PredictedParams(given.max_tokens, 0.0, ignore_eos=False, fields=fields)
        short = CompletionParams(WARM_UP, 0.0)
        engine.load(server.url, server.model(), [prompt], short, 1)
        server.clear_history()
        return measure(engine, server, server.model(), [prompt], sampling, 1)

    def turn(server: Server, name: str, task: Task, prediction: str, tenant: str) -> None:
        found.setdefault(name, []).append(output(server, task.prompt))
        if name not in drafters:
            return
        found.setdefault(name + PREDICTED, []).append(output(server, task.prompt, **{PREDICTION: prediction}))
        if given.tenants:
            assert not isinstance(task.earlier, str)
            output(server, task.earlier, **{TENANT: tenant})
            found.setdefault(name + STORED, []).append(output(server, task.prompt, **{TENANT: tenant}))

    with side_by_side(engine, settings, given.out) as servers:
        plain = servers[measured[0].name]
        for number, task in enumerate(tasks):
            earlier = task.earlier if isinstance(task.earlier, str) else output(plain, task.earlier).texts[0]
            for name, server in in_order(servers, number).items():
                turn(server, name, task, earlier, f"question {number}")
    titles = [one.name + way for one in measured for way in ("", PREDICTED, STORED)]
    return {title: found[title] for title in titles if title in found}


def table(found: dict[str, list[Measurement]], tasks: Sequence[Task]) -> Table:
    """Return a table with one row for each drafter and way."""
    plain, rows = rate(next(iter(found.values()))), []
    edits = all(task.correct is not None for task in tasks)
    for name, each in found.items():
        cells = [f"{tokens_per_step(each):.2f}", f"{rate(each):.1f}", f"{rate(each) / plain:.2f}x"]
        if edits:
            cells.append(str(sum((task.correct or "") in one.texts[0] for task, one in zip(tasks, each, strict=True))))
        rows.append([name, str(sum(one.tokens for one in each)), *cells])
    columns = ["drafter", "tokens", "tokens per step", "tokens/s", "speedup", *(["correct"] if edits else [])]
    what = "code edits" if edits else "questions asked again"
    return Table(f"{len(tasks)} {what}, greedy, concurrency 1", columns, rows)


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    prompts = 'HumanEval.jsonl for code edits, or user turns: JSON Lines with "user", or the file of Spec-Bench'
    add("--prompts", type=Path, required=True, help=prompts)
    add("--count", type=int, default=20, help="number of requests, spread over the file (default: %(default)s)")
    tenants = "also measure copies from the tenant's earlier output; drafters need the setting store (vllm only)"
    add("--tenants", action="store_true", help=tenants)
    add("--max-tokens", type=int, default=600, help="limit the tokens of an output (default: %(default)s)")
    out = "write results to this folder (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/predicted-outputs"), help=out)
    parser.set_defaults(temperatures=[0.0], trees=[], borrow=[], max_children=None, batch_size=1)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write results.json."""
    arguments = read_arguments(given)
    tasks = read_tasks(arguments.prompts, arguments.target, arguments.count)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = ask(arguments, tasks)
    facts = provenance.collect(prompts=arguments.prompts.name)
    rows = {name: list(map(measurement_to_json, each)) for name, each in found.items()}
    (arguments.out / "results.json").write_text(json.dumps({"results": rows, "provenance": facts}, indent=1) + "\n")
    Console(width=140).print(table(found, tasks).to_rich())


if __name__ == "__main__":
    sys.exit(main())
