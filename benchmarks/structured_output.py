r"""Compare sampled outputs with and without drafts by validity and distribution, where some requests have a grammar.

    python -m benchmarks.structured_output --target runs/smollm2 --drafter fastmtp=weights/smollm2-fastmtp \
        '--drafter-arg=fastmtp=--additional-config={"mtpc": {"adaptive": false}}' --out runs/structured-output

Requests with a JSON schema, with a regular expression and without a grammar are served in the same batches.  A
two-sample chi-square test compares the first characters of outputs with and without drafts.  Fisher's exact test
compares their validity.  The control is the engine without a drafter at another temperature: the chi-square test must
detect the difference.

For SGLang, adaptive draft lengths are turned off by --drafter-arg=fastmtp=--speculative-token-map and
--drafter-arg=fastmtp=?adaptive=false.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from scipy.stats import chi2_contingency, fisher_exact

from benchmarks.arguments import one_sentence
from benchmarks.speed_contestants import add_arguments, contestants
from mtpc.files import provenance
from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.bench.results import measurement_to_json, tokens_per_step
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import side_by_side
from mtpc.lab.statistics.windows import EXPECTED, Window, cells, count_windows
from mtpc.lab.table import Table
from mtpc.lab.text.chat_template import ChatTemplate, load_tokenizer
from mtpc.lab.text.prompts import Prompt, prompt_length

CHARACTERS = 64  # compared characters of an output
END = -1  # follows the last character of an output in its window
NO_DRAFTER, ALL = "no drafter", "all"
TRADES = ["baker", "doctor", "farmer", "painter", "teacher", "writer"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "trade": {"type": "string", "enum": TRADES},
    },
    "required": ["name", "age", "trade"],
    "additionalProperties": False,
}
DATE = "(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [1-9] (January|April|July|October) (18|19|20)[0-9]{2}"


def is_person(text: str) -> bool:
    """Return whether a text is JSON that satisfies `SCHEMA`."""
    try:
        person = json.loads(text)
    except ValueError:
        return False
    if not isinstance(person, dict) or person.keys() != SCHEMA["properties"].keys():  # type: ignore[attr-defined]
        return False
    name, age = person["name"], person["age"]
    named = isinstance(name, str) and len(name) <= 20
    return named and type(age) is int and 1 <= age <= 99 and person["trade"] in TRADES


class Structure(NamedTuple):
    """A prompt with the grammar of its outputs.

    Attributes:
        question: User turn.
        fields: Fields of a request that set the grammar, by engine.
        is_valid: Returns whether a complete output satisfies the grammar.
    """

    question: str
    fields: Mapping[str, dict[str, Any]]
    is_valid: Callable[[str], bool]


STRUCTURES = {
    "JSON schema": Structure(
        "Invent a person. Answer in JSON with name, age and trade.",
        {"vllm": {"structured_outputs": {"json": SCHEMA}}, "sglang": {"json_schema": json.dumps(SCHEMA)}},
        is_person,
    ),
    "regex": Structure(
        "Name a day of history and its date.",
        {"vllm": {"structured_outputs": {"regex": DATE}}, "sglang": {"regex": DATE}},
        lambda text: re.fullmatch(DATE, text) is not None,
    ),
    "free": Structure("Name an animal and say where it lives.", {"vllm": {}, "sglang": {}}, lambda text: True),
}


@dataclass(frozen=True)
class StructuredParams(CompletionParams):
    """Parameters of requests whose grammar depends on the prompt.

    Attributes:
        fields: Fields of the request, by the `key` of its prompt.
    """

    fields: Mapping[str | tuple[int, ...], dict[str, Any]] = field(default_factory=dict)

    def body(self, model: str, prompt: Prompt) -> dict[str, Any]:
        """Return the JSON of a request, see `CompletionParams.body`."""
        return super().body(model, prompt) | self.fields[key(prompt)]


def key(prompt: Prompt) -> str | tuple[int, ...]:
    """Return a hashable form of a prompt."""
    return prompt if isinstance(prompt, str) else tuple(prompt)


def questions(target: Path) -> list[Prompt]:
    """Return the prompt of each structure, in the chat template of a target that has one."""
    if load_tokenizer(target).chat_template is None:
        return [f"{one.question}\n" for one in STRUCTURES.values()]
    template = ChatTemplate(target)
    return [template.question(one.question) for one in STRUCTURES.values()]


class Comparison(NamedTuple):
    """Two-sample chi-square test of outputs: the p-value and the number of cells."""

    p: float
    cells: int


def compare(first: Sequence[Window], second: Sequence[Window]) -> Comparison:
    """Test whether two samples of windows have the same distribution.

    The cells are prefixes that are frequent enough in both samples together.
    """
    pooled = [*first, *second]
    longest = max(map(len, pooled))
    counts = Counter(window[:end] for window in pooled for end in range(len(window) + 1))
    after: dict[Window, dict[int, float]] = {}
    for prefix, count in counts.items():
        if prefix:
            after.setdefault(prefix[:-1], {})[prefix[-1]] = count / counts[prefix[:-1]]
    table = cells(lambda starts: [after.get(start) for start in starts], longest, len(pooled), 2 * EXPECTED)
    rows = [count_windows(sample, table) for sample in (first, second)]
    used = [key for key in table if any(row[key] for row in rows)]
    if len(used) < 2:
        return Comparison(1.0, len(used))
    result = chi2_contingency([[row[key] for key in used] for row in rows], correction=False)
    return Comparison(float(result.pvalue), len(used))


def windows(texts: Sequence[str], number: int) -> list[Window]:
    """Return the number of the structure and the first characters of each text."""
    return [(number, *[*map(ord, text), END][:CHARACTERS]) for text in texts]


def ask(given: argparse.Namespace) -> dict[str, Measurement]:
    """Return the outputs of all servers and of the control by name; the requests cycle through all structures."""
    engine = find_engine(given.engine)
    must_be_installed(engine)
    prompts = questions(given.target)
    asked = [prompts[number % len(prompts)] for number in range(given.requests)]
    fields = {key(prompt): one.fields[engine.name] for prompt, one in zip(prompts, STRUCTURES.values(), strict=True)}
    measured = list(contestants(given, engine, max(map(prompt_length, prompts))))
    settings = {one.name: engine.as_released(one.settings, one.temperatures) for one in measured}
    found: dict[str, Measurement] = {}
    with side_by_side(engine, settings, given.out) as servers:
        for name, server in servers.items():
            temperatures = {name: given.temperature}
            if name == NO_DRAFTER:
                temperatures[f"{name}, T = {given.control:g}"] = given.control
            for title, temperature in temperatures.items():
                sampling = StructuredParams(given.max_tokens, temperature, ignore_eos=False, fields=fields)
                found[title] = measure(engine, server, server.model(), asked, sampling, given.batch_size)
    return found


def table(found: Mapping[str, Measurement], temperature: float) -> Table:
    """Return a table with one row for each server and structure, compared with the engine without a drafter."""
    structures, rows = list(STRUCTURES.items()), []
    plain = found[NO_DRAFTER].texts
    for name, one in found.items():
        samples: list[list[Window]] = [[], []]
        valid: list[list[bool]] = [[], []]
        for number, (kind, structure) in enumerate([*structures, (ALL, None)]):
            if structure is not None:
                texts = [all_texts[number :: len(structures)] for all_texts in (plain, one.texts)]
                own = [windows(each, number) for each in texts]
                right = [[structure.is_valid(text) for text in each] for each in texts]
                samples = [before + more for before, more in zip(samples, own, strict=True)]
                valid = [before + more for before, more in zip(valid, right, strict=True)]
            else:
                own, right = samples, valid
            compared = ["-"] * 3
            if name != NO_DRAFTER:
                counts = [[sum(each), len(each) - sum(each)] for each in right]
                result = compare(*own)
                compared = [f"{fisher_exact(counts).pvalue:.2g}", str(result.cells), f"{result.p:.2g}"]
            length = f"{tokens_per_step([one]):.2f}" if structure is None else ""
            rows.append([name, kind, length, str(len(own[1])), f"{sum(right[1])}", *compared])
    columns = ["server", "structure", "tokens per step", "outputs", "valid", "p (validity)", "cells", "p (chi-square)"]
    return Table(f"Outputs at T = {temperature:g}, compared with those without drafts", columns, rows)


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--requests", type=int, default=500, help="send this many requests to each server (default: %(default)s)")
    add("--temperature", type=float, default=0.8, help="sampling temperature (default: %(default)s)")
    add("--control", type=float, default=1.2, help="sampling temperature of the control (default: %(default)s)")
    concurrency = "number of concurrent requests (default: %(default)s)"
    add("--concurrency", type=int, default=8, dest="batch_size", help=concurrency)
    add("--max-tokens", type=int, default=48, help="limit the tokens of an output (default: %(default)s)")
    out = "write results to this folder (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/structured-output"), help=out)
    parser.set_defaults(trees=[], borrow=[], max_children=None)
    arguments = parser.parse_args(given)
    arguments.temperatures = [arguments.temperature]
    return arguments


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write results.json."""
    arguments = read_arguments(given)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = ask(arguments)
    rows = {name: {**measurement_to_json(one), "texts": one.texts} for name, one in found.items()}
    results = {"results": rows, "provenance": provenance.collect()}
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    Console(width=140).print(table(found, arguments.temperature).to_rich())


if __name__ == "__main__":
    sys.exit(main())
