"""Public functions that another package calls document their arguments, results and errors in Google form."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

PLUGINS = Path(__file__).parent.parent / "plugins"
MODULES = {
    ".".join(path.relative_to(PLUGINS).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
    for path in sorted(PLUGINS.rglob("*.py"))
}
FOLDERS = {module for module in MODULES if (PLUGINS / module.replace(".", "/")).is_dir()}


def package_of(module: str) -> str:
    """The folder that a module lies in."""
    return module if module in FOLDERS else module.rpartition(".")[0]


def imported_elsewhere() -> set[tuple[str, str]]:
    """Names that are imported from a module of another package, as (module, name)."""
    return {
        (node.module, alias.name)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES and package_of(node.module) != package_of(module)
        for alias in node.names
    }


def missing_sections(function: ast.FunctionDef) -> Iterator[str]:
    """What its docstring leaves out."""
    text = inspect.cleandoc(ast.get_docstring(function) or "")
    first, sections = text.partition("\n")[0], {line for line in text.splitlines() if line.endswith(":")}
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if [name for name in names if name not in ("self", "cls") and f"    {name}:" not in text]:
        yield "Args"
    returns = None if function.returns is None else ast.unparse(function.returns)
    documented = {"Returns:", "Yields:"} & sections or first.startswith(("Return ", "Yield ", "Whether "))
    if returns not in (None, "None", "NoReturn") and not documented:
        yield "Returns"
    if "Raises:" not in sections and any(
        isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "MTPCError"
        for node in ast.walk(function)
    ):
        yield "Raises"


def test_functions_that_other_packages_call_are_documented() -> None:
    left_out = [
        f"{module}.{function.name}: {', '.join(missing)}"
        for module, name in sorted(imported_elsewhere())
        for function in MODULES[module].body
        if isinstance(function, ast.FunctionDef) and function.name == name
        if (missing := list(missing_sections(function)))
    ]
    assert not left_out, "\n".join(left_out)


def test_no_public_class_name_stands_twice() -> None:
    places: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}
