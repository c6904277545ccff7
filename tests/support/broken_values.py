"""Values that a declared model does not allow, generated from what it declares: one way each to be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

NAN, INFINITY = float("nan"), float("inf")
ABSURD = (10**9, 10**30)
# Of each type of JSON's schema those values that are of another; a whole number will do where any number would.
OF_ANOTHER_TYPE: dict[str, tuple[Any, ...]] = {
    "integer": ("3", 2.0, 1.5, True, [1], {"a": 1}, NAN, INFINITY, -INFINITY),
    "number": ("3", True, [1.0], {"a": 1}, NAN, INFINITY, -INFINITY),
    "string": (3, 1.5, True, ["a"], {"a": 1}),
    "boolean": (1, 0, "true", "no", [True], {"a": 1}),
    "array": (3, "a", True, {"a": 1}),
    "object": (3, "a", True, [1]),
}


def broken(model: type[BaseModel], values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is wrong, and values with it: a key that is missing, unknown, of another type, out of bounds."""
    schema = model.model_json_schema()
    for key in schema.get("required", ()):
        yield f"{key} missing", {name: value for name, value in values.items() if name != key}
    yield "unknown key", {**values, "colour": "red"}
    for key, declared in schema["properties"].items():
        for wrong in _wrong(_of_definition(declared, schema)):
            yield f"{key}={wrong!r:.30}", {**values, key: wrong}


def _of_definition(declared: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return schema["$defs"][declared["$ref"].rsplit("/", 1)[-1]] if "$ref" in declared else declared


def _wrong(declared: dict[str, Any]) -> Iterator[Any]:
    branches = declared.get("anyOf", [declared])
    if all(branch.get("type") != "null" for branch in branches):
        yield None
    of_value = next(branch for branch in branches if branch.get("type") != "null")
    kind = of_value.get("type", "string")
    yield from OF_ANOTHER_TYPE[kind]
    if "enum" in of_value or "const" in of_value:
        yield "nonsense" if kind == "string" else 9
    for bound, step in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0), ("exclusiveMaximum", 0)):
        if bound in of_value:
            yield of_value[bound] + step
    if "maximum" in of_value:
        yield from ABSURD
    if "multipleOf" in of_value:
        yield of_value["multipleOf"] + 1
    if "minLength" in of_value:
        yield ""
    if "pattern" in of_value:
        yield from ("nonsense", "0" * 99)
    if "minItems" in of_value:
        yield []
    if "minProperties" in of_value:
        yield {}
