"""What the adapters touch in each supported release of their engine: one file for each, one function a line.

A line has a function's parameters as Python writes them, every default as ``...``; ``null`` stands for a function that
the release does not have.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from inspect import Parameter, Signature
from pathlib import Path

from mtpc.serving.integration_point import IntegrationPoint, Lookup
from sglang_mtpc import integration_points as of_sglang
from tests.integration_points.sources import parameters_of
from vllm_mtpc import integration_points as of_vllm

FOLDER = Path(__file__).parent
ENGINES = {"vllm": of_vllm, "sglang": of_sglang}
COMMAND = "python -m tests.integration_points"


def recorded() -> list[str]:
    """The releases, as their files are called: ``vllm-0.33.0``."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def table(release: str) -> tuple[IntegrationPoint, ...]:
    """Of the adapter of that engine."""
    return ENGINES[release.split("-")[0]].TABLE


def key(module: str, function: str) -> str:
    """What a function is recorded under."""
    return f"{module}:{function}"


def shown(parameters: Iterable[Parameter]) -> str:
    """Parameters as they are recorded."""
    plain = [
        Parameter(one.name, one.kind, default=one.default if one.default is one.empty else ...) for one in parameters
    ]
    return str(Signature(plain)).replace("=Ellipsis", "=...")[1:-1]


def parsed(text: str) -> list[Parameter]:
    """What `shown` has written."""
    return parameters_of(ast.parse(f"def _({text}): ...").body[0])


def record(release: str, lookup: Lookup) -> dict[str, str | None]:
    """Every function that the table of its adapter names, as it is found there."""
    found: dict[str, str | None] = {}
    for line in table(release):
        try:
            found[key(line.module, line.function)] = shown(lookup(line.module, line.function))
        except LookupError:
            found[key(line.module, line.function)] = None
    return found


def write(release: str, found: dict[str, str | None]) -> Path:
    """Its file."""
    file = FOLDER / f"{release}.json"
    file.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    return file


def read(release: str) -> dict[str, str | None]:
    """What `write` has written."""
    found: dict[str, str | None] = json.loads((FOLDER / f"{release}.json").read_text())
    return found


def of_release(release: str) -> Lookup:
    """Where `IntegrationPoint.problem` finds what is recorded of a release."""
    found = read(release)

    def lookup(module: str, function: str) -> list[Parameter]:
        name = key(module, function)
        if name not in found:
            raise LookupError(f"it is missing in {release}.json: run `{COMMAND} WHEEL_OR_FOLDER` with {release}'s")
        if (text := found[name]) is None:
            raise LookupError(f"{release} has none")
        return parsed(text)

    return lookup
