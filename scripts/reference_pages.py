"""Writes the pages of docs/ that describe the code: commands, settings, checkpoints, metrics, integration points.

    python scripts/reference_pages.py [FOLDER]

Commands come from typer, settings and checkpoint formats from pydantic models, metrics and integration points from
their tables.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel

import sglang_mtpc.integration_points
import vllm_mtpc.integration_points
from mtpc.draft_length.cost import StepCost
from mtpc.lab.cli.main import app
from mtpc.methods import draft_methods
from mtpc.metrics.exporter import INFO, INFO_HELP, INFO_LABELS, METRICS
from mtpc.prompt_lookup.table import CopyingFile
from mtpc.serving.integration_point import IntegrationPoint
from sglang_mtpc.token_map import TokenMap
from vllm_mtpc.additional_config import VLLMDraftSettings

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "<!-- Written by scripts/reference_pages.py: change the code, then run `make reference`. -->\n\n"
ATTRIBUTE = re.compile(r"^(\w+): (.*)$")
COMMENTED = re.compile(r"^    (\w+): [^#\n]*  # (.+)$", re.MULTILINE)
# Modules that docstrings of settings name, and the guide that a user reads instead.
GUIDES = {
    "`mtpc.parallel.borrow`": "[Draft trees](../guides/trees.md#borrowed-nodes)",
    "`mtpc.vocabulary.formats`": "[Draft vocabularies](../guides/draft-vocabularies.md)",
    "`sglang_mtpc.longer_copies`": "[Prompt lookup](../guides/prompt-lookup.md#the-engines-own-drafters)",
}
COST = (
    "\n## Step costs\n\n`step_cost` is an object with these keys; points are pairs of a number and a cost.\n"
    "The unit is a decoding step of one request without draft tokens.\n\n"
)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    cells = [list(columns), *map(list, rows)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]]) + "\n"


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What each field means: from the docstrings' ``Attributes:``, or the comment at its declaration."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        found |= dict(COMMENTED.findall(inspect.getsource(base)))
        name = ""
        for line in inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2].splitlines():
            begun = ATTRIBUTE.match(line.strip()) if not line.startswith(" " * 8) else None
            if begun:
                name, found[begun[1]] = begun[1], begun[2]
            elif name and line.strip():
                found[name] += f" {line.strip()}"
    return found


def kind(schema: Mapping[str, Any]) -> str:
    """A type with its bounds, from a JSON schema."""
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return "object"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    name = schema.get("type", "any")
    if "prefixItems" in schema:
        return f"({', '.join(map(kind, schema['prefixItems']))})"
    if name == "array":
        return f"list of {kind(schema['items'])}"
    bounds = {"minimum": "≥ ", "maximum": "≤ ", "exclusiveMinimum": "> ", "exclusiveMaximum": "< "}
    stated = [f"{sign}{schema[key]:,}" for key, sign in bounds.items() if key in schema]
    return f"{name} {', '.join(stated)}".strip()


def fields(model: type[BaseModel]) -> str:
    """A table of a model's keys."""
    schema, meant = model.model_json_schema(), meanings(model)
    properties = schema.get("properties") or schema["$defs"][model.__name__]["properties"]
    rows = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        default = "required" if field.is_required() else f"`{json.dumps(field.get_default(call_default_factory=True))}`"
        meaning = meant.get(name, "")
        for module, guide in GUIDES.items():
            meaning = meaning.replace(module, guide)
        rows.append((f"`{key}`", kind(properties[key]), default, meaning))
    return table(("key", "type", "default", "meaning"), rows)


def objects(model: type[BaseModel]) -> str:
    """Tables of the keys whose values are objects with keys of their own."""
    found = {
        field.alias or name: kind
        for name, field in model.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
    return "".join(f"\n### Keys of `{name}`\n\n{fields(kind)}" for name, kind in found.items())


def settings(engine: str, place: str, model: type[BaseModel]) -> str:
    """The page of an engine's settings."""
    return (
        f"# {engine} settings\n\nSettings of this project in {engine}: {place}\n\n"
        f"{fields(model)}{COST}{fields(StepCost)}"
    )


def checkpoint() -> str:
    """The page of the checkpoint format."""
    files = (
        ("`config.json`", "What engines read, and the section of the draft method."),
        ("`model.safetensors`", "The tensors that the configuration makes, and no others."),
        (
            "`adapter_config.json`, `adapter_model.safetensors`",
            "The adapters of LoRA layers, as peft writes them.",
        ),
        ("`token_counts.safetensors`", "Of a draft model with SLRS: where the target's tokens end in a text."),
        ("`provenance.json`", "How the checkpoint was made."),
        ("`vocabulary.json`", "Optional: draft vocabularies by language."),
        ("`copying.json`", "Optional: probabilities of prompt lookup by the length of the match."),
    )
    parts = [
        f"# Checkpoint format\n\nFiles of a drafter checkpoint, a directory.\n\n{table(('file', 'content'), files)}"
    ]
    parts += (
        f'## Section "{method.name}"\n\nArchitecture `{method.architecture}`, in SGLang algorithm '
        f"`{method.algorithm}`.\n\n{fields(method.config)}{objects(method.config)}"
        for method in draft_methods()
    )
    parts.append(f"## `copying.json`\n\n{fields(CopyingFile)}")
    return "\n".join(parts)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it, by their whole names."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = typer.Context(command)
    for below in command.list_commands(context):
        yield from commands(command.get_command(context, below), f"{name} {below}")


def cli() -> str:
    """The page of the command line."""
    parts = ["# Command line\n\nEvery command of `mtpc` with its options.\n"]
    for name, command in commands(typer.main.get_command(app), "mtpc"):
        parts.append(f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n")
        rows = []
        for parameter in command.params:
            names = [parameter.metavar or parameter.name]
            if parameter.param_type_name == "option":
                names = [*parameter.opts, *parameter.secondary_opts]
            shown = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
            if isinstance(shown, tuple):
                shown = ",".join(map(str, shown))
            default = "required" if parameter.required else f"`{shown}`" if shown not in (None, "") else ""
            rows.append((", ".join(f"`{name}`" for name in names), default, parameter.help or ""))
        parts.append(table(("option", "default", "meaning"), rows))
    return "\n".join(parts)


def metrics() -> str:
    """The page of the metrics."""
    named = {f"{name}_total": counted for name, counted in METRICS.items()} | {INFO: (INFO_HELP, INFO_LABELS)}
    rows = ((f"`{name}`", ", ".join(f"`{label}`" for label in by), what) for name, (what, by) in named.items())
    head = "# Metrics\n\nMetrics on the engine's own page of metrics; all carry `model_name` and `engine`.\n\n"
    return head + table(("metric", "further labels", "counts"), rows)


def integration_points() -> str:
    """The page of the integration points."""
    tables: dict[str, tuple[str, tuple[IntegrationPoint, ...]]] = {
        "vLLM": (vllm_mtpc.integration_points.VERSIONS, vllm_mtpc.integration_points.TABLE),
        "SGLang": (sglang_mtpc.integration_points.VERSIONS, sglang_mtpc.integration_points.TABLE),
    }
    head = (
        "# Integration points\n\nEvery function of an engine that this project calls, reads, extends or patches.\n"
        "Installed files are not changed: functions are wrapped or replaced when the engine imports them.\n"
        "`mtpc doctor` checks each line by signature.\n"
    )
    parts = [head]
    for engine, (versions, lines) in tables.items():
        rows = ((f"`{line.module}`", f"`{line.function}`", line.how, line.group, line.why) for line in lines)
        parts.append(f"## {engine} {versions}\n\n{table(('module', 'function', 'how', 'for', 'purpose'), rows)}")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Every generated page, by its path in docs/."""
    found = {
        "reference/cli.md": cli(),
        "reference/vllm.md": settings("vLLM", '`--additional-config \'{"mtpc": {"KEY": VALUE}}\'`.', VLLMDraftSettings),
        "reference/sglang.md": settings(
            "SGLang",
            "`--speculative-token-map 'FILE?KEY=VALUE&KEY=VALUE'`.\n"
            "`FILE` is the `vocabulary` and may be left out; values are JSON, or text without quotes.",
            TokenMap,
        ),
        "reference/checkpoint.md": checkpoint(),
        "reference/metrics.md": metrics(),
        "developer/integration-points.md": integration_points(),
    }
    return {name: NOTE + text for name, text in found.items()}


def main() -> None:
    """Write all pages, into docs/ unless another folder is given."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else DOCS
    for name, text in pages().items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
