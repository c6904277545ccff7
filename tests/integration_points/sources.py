"""The parameters of functions in an engine's sources, as `inspect.signature` gives them once it is installed.

Nothing is imported.  Followed are re-exports, assignments, base classes within the engine's package, and what makes an
``__init__`` of fields.  Decorators are taken to keep the parameters, but for ``classmethod``.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterable, Iterator
from inspect import Parameter
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
MAKES_INIT = ("dataclass", "config", "NamedTuple", "Struct")  # of fields: decorators (config is vLLM's) and bases


class Found(NamedTuple):
    """A function or class, and the module in which it is defined."""

    module: str
    node: ast.ClassDef | Function


class Sources:
    """An engine's package in a wheel, or in a folder that contains it."""

    def __init__(self, path: Path) -> None:
        self.root = zipfile.Path(path) if path.is_file() else path
        self.trees: dict[str, ast.Module] = {}
        self.names: dict[tuple[str, str], Found | None] = {}

    def parameters(self, module: str, function: str) -> list[Parameter]:
        """Those of a function, of a method looked up on its class, or of a class.

        Errors: `LookupError` if there is none of that name.
        """
        first, *rest = function.split(".")
        found, in_class = self._named(module, first), False
        for name in rest:
            init = self._init(found) if name == "__init__" else None
            if init is not None:
                return init
            found, in_class = self._member(found, name), True
        if found is not None and isinstance(found.node, ast.ClassDef):
            init = self._init(found)
            if init is not None:
                return init[1:]
        elif found is not None:
            parameters = parameters_of(found.node)
            bound = in_class and "classmethod" in map(ast.unparse, found.node.decorator_list)
            return parameters[1:] if bound else parameters
        raise LookupError(f"{module} has no {function}")

    def _module(self, name: str) -> tuple[ast.Module, bool]:
        """Its syntax, and whether it is a package; an empty module, if there is none."""
        folder = self.root.joinpath(*name.split("."))
        file = folder / "__init__.py"
        package = file.is_file()
        if not package:
            file = folder.parent / f"{folder.name}.py"
        if name not in self.trees:
            self.trees[name] = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
        return self.trees[name], package

    def _named(self, module: str, name: str) -> Found | None:
        """What a name stands for in a module in the end; nothing while it is looked for: modules import each other."""
        if (module, name) in self.names:
            return self.names[module, name]
        found = self.names[module, name] = None
        for node in _statements(self._module(module)[0].body):
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                found = Found(module, node)
            elif isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
                found = self._value(module, node.value) or found
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*" or (alias.asname or alias.name) == name:
                        wanted = name if alias.name == "*" else alias.name
                        found = self._named(self._origin(module, node), wanted) or found
        self.names[module, name] = found
        return found

    def _origin(self, module: str, node: ast.ImportFrom) -> str:
        """The module that something is imported from."""
        here = module.split(".")
        above = here[: len(here) - node.level + self._module(module)[1]] if node.level else []
        return ".".join([*above, *([node.module] if node.module else [])])

    def _value(self, module: str, value: ast.expr) -> Found | None:
        """What an expression stands for, if it is a name, also one of a module's or a class's."""
        if isinstance(value, ast.Subscript):  # a base such as Generic[T]
            return self._value(module, value.value)
        if isinstance(value, ast.Name):
            return self._named(module, value.id)
        if isinstance(value, ast.Attribute):
            owner = self._value(module, value.value)
            return (
                self._member(owner, value.attr) if owner else self._named(self._alias(module, value.value), value.attr)
            )
        return None

    def _alias(self, module: str, value: ast.expr) -> str:
        """The module that a name stands for; what is no module's name is taken for one that does not exist."""
        name = ast.unparse(value)
        for node in _statements(self._module(module)[0].body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        above = [self._origin(module, node)] if isinstance(node, ast.ImportFrom) else []
                        return ".".join([*above, alias.name])
        return name

    def _member(self, owner: Found | None, name: str) -> Found | None:
        """A member of a class, its own or of the first base that has it."""
        for module, node in self._lineage(owner):
            for statement in _statements(node.body):
                if isinstance(statement, ast.ClassDef | Function) and statement.name == name:
                    return Found(module, statement)
                if isinstance(statement, ast.Assign) and name in map(ast.unparse, statement.targets):
                    return next((Found(module, one) for one in node.body if _is_called(one, statement.value)), None)
        return None

    def _lineage(self, owner: Found | None) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class and those of its bases that are the engine's, each before its own bases."""
        if owner is not None and isinstance(owner.node, ast.ClassDef):
            yield owner.module, owner.node
            for base in owner.node.bases:
                yield from self._lineage(self._value(owner.module, base))

    def _init(self, owner: Found | None) -> list[Parameter] | None:
        """Of a class's ``__init__``: the first in its lineage that is written, or made of fields."""
        lineage = list(self._lineage(owner))
        for number, (_, node) in enumerate(lineage):
            if _makes_init(node):
                return _of_fields(node for _, node in reversed(lineage[number:]))
            own = [one for one in _statements(node.body) if isinstance(one, Function) and one.name == "__init__"]
            if own:
                return parameters_of(own[-1])
        return None


def parameters_of(node: ast.AST) -> list[Parameter]:
    """Those of a definition; every default is ``...``."""
    assert isinstance(node, Function)
    given, found = node.args, []
    by_position = [*given.posonlyargs, *given.args]
    for number, one in enumerate(by_position, start=len(given.defaults) - len(by_position)):
        only = one in given.posonlyargs
        kind = Parameter.POSITIONAL_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD
        found.append(Parameter(one.arg, kind, default=... if number >= 0 else Parameter.empty))
    if given.vararg:
        found.append(Parameter(given.vararg.arg, Parameter.VAR_POSITIONAL))
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(Parameter(one.arg, Parameter.KEYWORD_ONLY, default=... if default else Parameter.empty))
    if given.kwarg:
        found.append(Parameter(given.kwarg.arg, Parameter.VAR_KEYWORD))
    return found


def _of_fields(lineage: Iterable[ast.ClassDef]) -> list[Parameter]:
    """Those of an ``__init__`` that is made of the annotated names of classes, of bases first."""
    fields: dict[str, Parameter] = {}
    for node in filter(_makes_init, lineage):
        by_keyword = any("kw_only=True" in ast.unparse(one) for one in [*node.decorator_list, *node.keywords])
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign):
                continue
            name, kind = ast.unparse(statement.target), ast.unparse(statement.annotation)
            value = ast.unparse(statement.value) if statement.value else ""
            if kind == "KW_ONLY":
                by_keyword = True
            elif "ClassVar" not in kind and "init=False" not in value:
                only = by_keyword or "kw_only=True" in value
                optional = value and ("default" in value or not value.startswith(("field(", "Field(")))
                fields[name] = Parameter(
                    name,
                    Parameter.KEYWORD_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD,
                    default=... if optional else Parameter.empty,
                )
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    return [itself, *sorted(fields.values(), key=lambda one: one.kind)]


def _makes_init(node: ast.ClassDef) -> bool:
    named = (ast.unparse(one).split("(")[0].split(".")[-1] for one in [*node.decorator_list, *node.bases])
    return not set(MAKES_INIT).isdisjoint(named)


def _is_called(node: ast.stmt, value: ast.expr) -> bool:
    return isinstance(node, Function) and node.name == ast.unparse(value)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module or class, also under conditions and in a ``try``, but not for type checkers alone."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([] if "TYPE_CHECKING" in ast.unparse(node.test) else node.body)
            yield from _statements(node.orelse)
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse, *(one for each in node.handlers for one in each.body)])
        else:
            yield node
