"""Integration points of an adapter, each checked against the installed engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from inspect import Parameter
from typing import NamedTuple

from mtpc.serving.check_result import CheckResult

Lookup = Callable[[str, str], list[Parameter]]  # (module, function) -> parameters; raises `LookupError`
BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_KEYWORD = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class IntegrationPoint(NamedTuple):
    """One function of an engine, and the parameters that the adapter relies on.

    Attributes:
        group: Group of integration points that are checked together.
        module: Module of the function.
        function: Its name, with its class if it has one.
        parameters: Names of its first parameters and then, after a lone ``*``, those passed by keyword, in any order.
        how: How the adapter uses it, which decides what other parameters are allowed:

            - called: The adapter calls it.  Further parameters must have defaults.
            - read: The engine calls or builds it and the adapter reads the result.  Any others are allowed.
            - wrapped, hooked, extended: The adapter's function passes all arguments on.  Any others are allowed.
            - replaced: The adapter's function takes exactly these parameters.  No others are allowed.
        why: What the adapter needs it for.
    """

    group: str
    module: str
    function: str
    parameters: str
    how: str
    why: str

    def problem(self, lookup: Lookup | None = None) -> str | None:
        """Return a description of the mismatch; None if there is none.

        Args:
            lookup: Returns the parameters of a module's function; None: inspect the installed engine.
        """
        try:
            found = (lookup or installed)(self.module, self.function)
        except LookupError as error:
            return f"{self.function} of {self.module} cannot be used ({error.args[0]})"
        if self._holds(found):
            return None
        got = " ".join(one.name for one in found)
        return f"{self.function} of {self.module} takes ({got}) where ({self.parameters}) is expected"

    def _holds(self, found: list[Parameter]) -> bool:
        """Whether the parameters that were found satisfy this integration point."""
        leading, star, keywords = (part.split() for part in self.parameters.partition("*"))
        if self.how == "replaced":
            return not star and [one.name for one in found] == leading
        begin, others = found[: len(leading)], found[len(leading) :]
        if [one.name for one in begin if one.kind in BY_POSITION] != leading:
            return False
        if not {one.name for one in found if one.kind in BY_KEYWORD}.issuperset(keywords):
            return False
        required = {one.name for one in others if one.default is one.empty and one.kind in (*BY_POSITION, *BY_KEYWORD)}
        return self.how != "called" or required.issubset(keywords)


def installed(module: str, function: str) -> list[Parameter]:
    """Return the parameters of a function of an installed module.

    Args:
        module: Full name of the module.
        function: Name of the function, with its class if it has one.

    Returns:
        Its parameters.

    Raises:
        LookupError: The module or function cannot be imported or inspected.
    """
    try:
        found: object = import_module(module)
        for name in function.split("."):
            found = getattr(found, name)
        assert callable(found)
        return list(inspect.signature(found).parameters.values())
    except (ImportError, AttributeError, TypeError, AssertionError) as error:
        raise LookupError(str(error)) from error


def mismatches(table: Iterable[IntegrationPoint], fix: str) -> Iterator[str]:
    """Yield one sentence for each integration point that the installed engine does not satisfy.

    Args:
        table: Integration points to check.
        fix: How to fix a mismatch, without a period.
    """
    return (f"{problem}; {fix}." for line in table if (problem := line.problem()))


def check_results(engine: str, table: Iterable[IntegrationPoint], fix: str) -> list[CheckResult]:
    """Check every integration point for ``mtpc doctor``.

    Args:
        engine: Name of the engine.
        table: Integration points to check.
        fix: How to fix a mismatch, without a period.

    Returns:
        One result for each integration point.
    """
    lines = []
    for line in table:
        problem = line.problem()
        detail, advice = (problem, f"{fix.capitalize()}.") if problem else (f"{line.how}: {line.why}", "")
        lines.append(CheckResult(f"{engine}: {line.function}", problem is None, detail, advice))
    return lines
