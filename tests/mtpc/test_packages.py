"""What an engine's process imports, and who knows a draft method by its name (cycles and floors: `make lint`)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mtpc.methods import draft_methods

ROOT = Path(__file__).parents[2]
CORE = ROOT / "plugins" / "mtpc"
FOLDERS = ("bench", "distill", "doctor", "inspect", "prove", "servers", "statistics")
COMMANDS = ("bench", "inspect", "doctor", "distill", "tree", "vocab", "prove")
GENERIC = [
    *(file for folder in FOLDERS for file in (CORE / "lab" / folder).glob("*.py")),
    *(CORE / "lab" / "cli" / f"{name}.py" for name in COMMANDS),
    *(file for folder in ("metrics", "serving", "vocabulary") for file in (CORE / folder).glob("*.py")),
    ROOT / "scripts" / "demo.py",
]
ADAPTERS = [file for name in ("vllm_mtpc", "sglang_mtpc") for file in (ROOT / "plugins" / name).rglob("*.py")]
METHODS = draft_methods()
NAMES = {name for method in METHODS for name in (method.name, method.algorithm, method.architecture)}
PROJECT = "mtpc"  # a draft method and this project, whose settings have this name in an engine's configuration
LAB_ONLY = ("mtpc.lab", "typer", "rich", "openai", "matplotlib", "transformers")


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_method_is_known_by_its_name() -> None:
    of_methods = tuple(f"mtpc.methods.{method.name}" for method in METHODS)
    for file in (*GENERIC, *ADAPTERS):
        assert not [name for name in imported(file) if name.startswith(of_methods)], file
        constants = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
        assert not (constants & NAMES - {PROJECT}), file


def floor() -> list[str]:
    """Every module of the serving floor."""
    files = (file.relative_to(CORE) for file in CORE.rglob("*.py"))
    names = (".".join(["mtpc", *file.with_suffix("").parts]).removesuffix(".__init__") for file in files)
    return sorted(name for name in names if not name.startswith("mtpc.lab"))


def test_the_serving_floor_imports_nothing_of_the_lab() -> None:
    """The layer is built of transformers, but no engine's process runs it: engines have the same layer of their own."""
    modules = [name for name in floor() if name != "mtpc.autoregressive.layer"]
    check = f"import sys, {', '.join(modules)}; print(*sorted(sys.modules.keys() & set({LAB_ONLY!r})))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
