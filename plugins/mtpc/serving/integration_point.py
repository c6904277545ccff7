"""One line of an adapter's table of what it touches in its engine, checked against the engine that is installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from inspect import Parameter
from typing import NamedTuple

from mtpc.serving.check_result import Finding

Lookup = Callable[[str, str], list[Parameter]]  # parameters of a module's function; raises `LookupError`
BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_KEYWORD = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class IntegrationPoint(NamedTuple):
    """One function of an engine and the parameters that the adapter counts on.

    parameters: the names that it begins with and then, after a lone ``*``, those that are passed by keyword, anywhere.
    how: decides what else there may be.

    - called: by us.  Further parameters must have defaults.
    - read: called or built by the engine; we read what it leaves.  Anything else.
    - wrapped, hooked, extended (a subclass overrides it): our function passes on all that it is given.  Anything else.
    - replaced: our function takes exactly these and does not pass on others.  Nothing else.
    """

    group: str
    module: str
    function: str
    parameters: str
    how: str
    why: str

    def problem(self, lookup: Lookup | None = None) -> str | None:
        """What is wrong with this line, if anything; lookup: where, None: in the installed engine."""
        try:
            found = (lookup or installed)(self.module, self.function)
        except LookupError as error:
            return f"{self.function} of {self.module} cannot be used ({error.args[0]})"
        if self._holds(found):
            return None
        got = " ".join(one.name for one in found)
        return f"{self.function} of {self.module} takes ({got}) where ({self.parameters}) is expected"

    def _holds(self, found: list[Parameter]) -> bool:
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
    """The parameters of a function of an installed module.

    Errors: `LookupError` where it cannot be used.
    """
    try:
        found: object = import_module(module)
        for name in function.split("."):
            found = getattr(found, name)
        assert callable(found)
        return list(inspect.signature(found).parameters.values())
    except (ImportError, AttributeError, TypeError, AssertionError) as error:
        raise LookupError(str(error)) from error


def sentences(table: Iterable[IntegrationPoint], mend: str) -> Iterator[str]:
    """One sentence for each line that does not hold in the installed engine; ``mend`` says what to do about it."""
    return (f"{problem}; {mend}." for line in table if (problem := line.problem()))


def findings(engine: str, table: Iterable[IntegrationPoint], mend: str) -> list[Finding]:
    """Every line of a table, for `mtpc doctor`."""
    lines = []
    for line in table:
        problem = line.problem()
        detail, advice = (problem, f"{mend.capitalize()}.") if problem else (f"{line.how}: {line.why}", "")
        lines.append(Finding(f"{engine}: {line.function}", problem is None, detail, advice))
    return lines
