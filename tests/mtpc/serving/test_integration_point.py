"""What a line of an adapter's table expects of a function: here, of some of the standard library."""

from __future__ import annotations

import ast
from inspect import Parameter

import pytest

from mtpc.serving.integration_point import IntegrationPoint, check_results, installed, mismatches
from tests.integration_points.sources import parameters_of

# textwrap.shorten takes (text, width, **kwargs)
SHORTEN = IntegrationPoint("any", "textwrap", "shorten", "text width kwargs", "replaced", "a test")


@pytest.mark.parametrize(
    ("taken", "expected", "right"),
    [
        ("a, b", "a b", "called read passed replaced"),
        ("a, b=1", "a b", "called read passed replaced"),
        ("a, b=1, c=2", "a b", "called read passed"),  # a release with one more, which only some pass on
        ("a, b, c", "a b", "read passed"),  # which a caller must give
        ("a, b, *, c", "a b", "read passed"),
        ("a, b, *more, **named", "a b", "called read passed"),
        ("a, b=1, *, c=2", "a * c", "called read passed"),
        ("a, c, b=1", "a * c", "called read passed"),
        ("a, b, c=1", "a * c", "read passed"),
        ("a, c, /", "a * c", ""),
        ("a, *, b", "a b", "replaced"),  # no longer by position, which is nothing to what takes it either way
        ("b, a", "a b", ""),
        ("a, renamed", "a b", ""),
        ("a, **named", "a * c", ""),
        ("a", "a b", ""),
        ("a", "", "read passed"),
        ("", "", "called read passed replaced"),
    ],
)
def test_what_holds(taken: str, expected: str, right: str) -> None:
    def lookup(module: str, function: str) -> list[Parameter]:
        return parameters_of(ast.parse(f"def _({taken}): ...").body[0])

    kinds = {
        "called": ["called"],
        "read": ["read"],
        "passed": ["wrapped", "hooked", "extended"],
        "replaced": ["replaced"],
    }
    for kind, hows in kinds.items():
        for how in hows:
            problem = SHORTEN._replace(parameters=expected, how=how).problem(lookup)
            assert (problem is None) == (kind in right.split()), (how, problem)


def test_where_it_is_looked_up() -> None:
    assert SHORTEN.problem() is None
    assert [one.name for one in installed("textwrap", "shorten")] == ["text", "width", "kwargs"]
    for module, function in (("textwrap", "gone"), ("gone", "shorten"), ("string", "digits")):
        with pytest.raises(LookupError):
            installed(module, function)


def test_what_is_found_is_said_in_a_sentence() -> None:
    gone = SHORTEN._replace(function="gone")
    right, wrong = check_results("some engine", [SHORTEN, gone], "install version 1")
    assert right == ("some engine: shorten", True, "replaced: a test", "")
    assert (wrong.subject, wrong.ok, wrong.fix) == ("some engine: gone", False, "Install version 1.")
    assert list(mismatches([SHORTEN, gone], "install version 1")) == [f"{wrong.detail}; install version 1."]
    assert wrong.detail.startswith("gone of textwrap cannot be used (")
