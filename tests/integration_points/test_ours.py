"""Functions of ours around an engine's pass on all that they are given, or they take exactly what their line names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from inspect import Parameter
from pathlib import Path

import pytest

from mtpc.serving.integration_point import IntegrationPoint
from tests.integration_points.records import ENGINES
from tests.integration_points.sources import parameters_of

PASSES_ON = ("wrapped", "hooked", "extended")
FIRST = ("self", "original")  # what an engine's function has not, where it is found on its object or handed over
CALLED_BY_US = {("vllm", "Speculator.__init__")}


def around(engine: str) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Functions of an adapter that may stand around one of its engine's: that one's name, theirs, and what they are.

    They are methods of classes that extend the engine's, decorated with ``functools.wraps`` or for `put_around`.
    """
    trees = [ast.parse(file.read_text()) for file in sorted(Path(ENGINES[engine].__file__).parent.rglob("*.py"))]
    extended = set(extending(trees, engine))
    for tree in trees:
        nodes = list(ast.walk(tree))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        texts = {
            ast.unparse(node.targets[0]): ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign)
        }
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name in extended:
                for one in node.body:
                    if isinstance(one, ast.FunctionDef):
                        yield one.name, f"{node.name}.{one.name}", one
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "put_around":
                target, function = map(ast.unparse, node.args)
                name = texts[target].strip("'").split(".")[-1]
                yield from ((name, function, one) for one in functions if one.name == function)
        for one in functions:
            if any(ast.unparse(by).startswith("functools.wraps(") for by in one.decorator_list):
                yield one.name, one.name, one


def extending(trees: Sequence[ast.Module], engine: str) -> Iterator[str]:
    """Classes of an adapter that extend one of its engine's, or one that does."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    known = {alias.name for node in imports if node.module.split(".")[0] == engine for alias in node.names}
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    while found := [
        one for one in classes if one.name not in known and known.intersection(map(ast.unparse, one.bases))
    ]:
        known.update(one.name for one in found)
        yield from (one.name for one in found)


def fits(function: ast.FunctionDef, line: IntegrationPoint) -> bool:
    """Whether a function of ours and the line of the engine's function agree on what is taken and passed on."""
    given = [one for one in parameters_of(function) if one.name not in FIRST]
    kinds = {one.kind for one in given}
    ours = [
        [one.name for one in given if one.kind is kind]
        for kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    leading, _, by_keyword = (part.split() for part in line.parameters.removeprefix("self").partition("*"))
    if line.how == "replaced":
        return ours == [leading, []] and len(kinds) <= 1
    rest = Parameter.VAR_KEYWORD in kinds and (Parameter.VAR_POSITIONAL in kinds or bool(ours[1]))
    return rest and ours[0] == leading and set(ours[1]) <= set(by_keyword)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stands_around_a_function_fits_its_line(engine: str) -> None:
    lines: dict[str, list[IntegrationPoint]] = {}
    for line in ENGINES[engine].TABLE:
        if line.how in (*PASSES_ON, "replaced"):
            lines.setdefault(line.function.split(".")[-1], []).append(line)
    seen = set()
    for name, called, function in around(engine):
        if name in lines and (engine, called) not in CALLED_BY_US:
            assert any(fits(function, line) for line in lines[name]), f"{called}({ast.unparse(function.args)})"
            seen.add(name)
    passed_on = {name for name, some in lines.items() if any(line.how in PASSES_ON for line in some)}
    assert passed_on <= seen


@pytest.mark.parametrize(
    ("ours", "how", "parameters", "right"),
    [
        ("self, a, *more, **named", "wrapped", "self a", True),
        ("original, a, *, b, **named", "hooked", "a * b c", True),
        ("self, a", "wrapped", "self a", False),
        ("self, a, **named", "wrapped", "self a", False),
        ("self, a, *more", "wrapped", "self a", False),
        ("self, a, *more, **named", "wrapped", "self a b", False),
        ("self, b, *more, **named", "wrapped", "self a", False),
        ("self, a, *, c, **named", "wrapped", "self a * b", False),
        ("self, a, b=1", "replaced", "self a b", True),
        ("self, a", "replaced", "self a b", False),
        ("self, a, *more, **named", "replaced", "self a", False),
    ],
)
def test_what_fits(ours: str, how: str, parameters: str, right: bool) -> None:
    function = ast.parse(f"def _({ours}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert fits(function, IntegrationPoint("any", "module", "function", parameters, how, "a test")) is right
