r"""Tokens per decoding step and tokens/s of code edits, with and without predicted outputs.

    mtpc train copying --target runs/qwen05 --num-drafts 16 --out runs/copying
    python -m benchmarks.predicted_outputs --target runs/qwen05 --prompts HumanEval.jsonl --ngram 2-4:16 \
        --drafter lookup=runs/copying --out runs/predicted-outputs

Each edit asks the target to write a function of HumanEval again under another name.  The request's prediction is the
unchanged function.  All servers run at once and complete the same edits in turn, at concurrency 1.  Each drafter
completes every edit twice: without and with the prediction.  "correct edits" counts the outputs that contain the
renamed function.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.in_turn import in_order
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
from mtpc.lab.text.prompts import Prompt
from mtpc.prompt_lookup.prediction import PREDICTION

PARAMETERS = {"vllm": "vllm_xargs", "sglang": "custom_params"}  # request fields for predictions, by engine
CHARACTERS = range(300, 1500)  # lengths of the functions that are used
PREDICTED = ", with prediction"


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


def ask(given: argparse.Namespace, edits: Sequence[Edit]) -> dict[str, list[Measurement]]:
    """Start all servers, and return their outputs by name; those of drafters without and with predictions."""
    engine, template = find_engine(given.engine), ChatTemplate(given.target)
    must_be_installed(engine)
    prompts: list[Prompt] = [template.question(edit.request) for edit in edits]
    measured = list(contestants(given, engine, max(map(len, prompts))))
    settings = {one.name: engine.as_released(one.settings, one.temperatures) for one in measured}
    drafters = {one.name for one in measured if one.settings.drafter is not None}
    found: dict[str, list[Measurement]] = {}
    plain = PredictedParams(given.max_tokens, 0.0, ignore_eos=False)

    def ways(name: str, edit: Edit) -> Iterator[tuple[str, PredictedParams]]:
        yield name, plain
        if name in drafters:
            parameters = (PARAMETERS[engine.name], {PREDICTION: edit.before})
            yield name + PREDICTED, PredictedParams(given.max_tokens, 0.0, ignore_eos=False, fields=(parameters,))

    def turn(server: Server, name: str, edit: Edit, prompt: Prompt) -> None:
        for title, sampling in ways(name, edit):
            found.setdefault(title, []).append(measure(engine, server, server.model(), [prompt], sampling, 1))

    with side_by_side(engine, settings, given.out) as servers:
        for number, (edit, prompt) in enumerate(zip(edits, prompts, strict=True)):
            for name, server in in_order(servers, number).items():
                turn(server, name, edit, prompt)
    titles = [title for one in measured for title, _ in ways(one.name, edits[0])]
    return {title: found[title] for title in titles}


def table(found: dict[str, list[Measurement]], edits: Sequence[Edit]) -> Table:
    """Return a table with one row for each drafter."""
    plain, rows = rate(next(iter(found.values()))), []
    for name, each in found.items():
        right = sum(edit.after in one.texts[0] for edit, one in zip(edits, each, strict=True))
        cells = (f"{tokens_per_step(each):.2f}", f"{rate(each):.1f}", f"{rate(each) / plain:.2f}x", str(right))
        rows.append([name, str(sum(one.tokens for one in each)), *cells])
    columns = ["drafter", "tokens", "tokens per step", "tokens/s", "speedup", "correct edits"]
    return Table(f"{len(edits)} code edits, greedy, concurrency 1", columns, rows)


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--prompts", type=Path, required=True, help="HumanEval's file, HumanEval.jsonl")
    add("--count", type=int, default=20, help="number of edits (default: %(default)s)")
    add("--max-tokens", type=int, default=600, help="limit the tokens of an output (default: %(default)s)")
    out = "write results to this folder (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/predicted-outputs"), help=out)
    parser.set_defaults(temperatures=[0.0], trees=[], borrow=[], max_children=None, batch_size=1)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write results.json."""
    arguments = read_arguments(given)
    edits = read_edits(arguments.prompts, arguments.count)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = ask(arguments, edits)
    facts = provenance.collect(prompts=arguments.prompts.name)
    rows = {name: list(map(measurement_to_json, each)) for name, each in found.items()}
    (arguments.out / "results.json").write_text(json.dumps({"results": rows, "provenance": facts}, indent=1) + "\n")
    Console(width=140).print(table(found, edits).to_rich())


if __name__ == "__main__":
    sys.exit(main())
