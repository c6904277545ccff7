"""What the benchmark, distillation and the demo share imports none of them; none of it knows a family by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpc.families.fastmtp.family import FastMTP
from mtpc.families.gumiho.family import Gumiho
from mtpc.families.mtpc.family import MTPC

ROOT = Path(__file__).parents[3]
CORE = ROOT / "plugins" / "mtpc"
ROOMS = ("servers", "bench", "distill", "doctor", "metrics", "prove", "statistics", "vocabulary", "tree_step")
GENERIC = [
    *(file for room in ROOMS for file in (CORE / room).glob("*.py")),
    *(CORE / "cli" / f"{name}.py" for name in ("bench", "inspect", "doctor", "distill", "tree", "vocab", "prove")),
    CORE / "inspection.py",
    ROOT / "scripts" / "demo.py",
]
FAMILIES = (MTPC, FastMTP, Gumiho)
OF_FAMILIES = {name for family in FAMILIES for name in (family.name, family.algorithm, family.architecture)}


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", ["servers", "distill"])
def test_what_the_benchmark_uses_does_not_use_the_benchmark(room: str) -> None:
    for file in (CORE / room).glob("*.py"):
        assert not [name for name in imported(file) if name.startswith("mtpc.bench")], file.name


@pytest.mark.parametrize("file", GENERIC, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_no_family_is_known_by_its_name(file: Path) -> None:
    own = [f"mtpc.families.{family.name}" for family in FAMILIES]
    assert not [name for name in imported(file) if name.startswith(tuple(own))]
    constants = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
    assert not (constants & OF_FAMILIES)
