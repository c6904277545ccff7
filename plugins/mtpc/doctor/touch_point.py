"""One line of an adapter's table of what it touches in its engine, checked against the engine that is installed."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import NamedTuple

from mtpc.doctor.finding import Finding


class TouchPoint(NamedTuple):
    """One function of an engine and the parameters that the adapter counts on.

    What is called must begin with them; what stands in for the engine's own must have exactly them.  Names after a
    lone ``*`` are passed by keyword: they must be there, anywhere.
    """

    group: str
    module: str
    function: str
    parameters: str
    how: str  # called; hooked (the engine calls us around it), wrapped, extended (a subclass overrides it), replaced
    why: str

    def problem(self) -> str | None:
        """What is wrong with this line in the installed engine, if anything."""
        try:
            function: object = import_module(self.module)
            for name in self.function.split("."):
                function = getattr(function, name)
            assert callable(function)
            parameters = list(inspect.signature(function).parameters)
        except (ImportError, AttributeError, TypeError, AssertionError) as error:
            return f"{self.function} of {self.module} cannot be used ({error})"
        leading, _, keywords = (part.split() for part in self.parameters.partition("*"))
        begin = self.how in ("called", "hooked")
        if (parameters[: len(leading)] if begin else parameters) != leading or not set(keywords) <= set(parameters):
            got = " ".join(parameters)
            return f"{self.function} of {self.module} takes ({got}) where ({self.parameters}) is expected"
        return None


def sentences(table: Iterable[TouchPoint], mend: str) -> Iterator[str]:
    """One sentence for each line that does not hold in the installed engine; ``mend`` says what to do about it."""
    return (f"{problem}; {mend}." for line in table if (problem := line.problem()))


def findings(engine: str, table: Iterable[TouchPoint], mend: str) -> list[Finding]:
    """Every line of a table, for `mtpc doctor`."""
    lines = []
    for line in table:
        problem = line.problem()
        detail, advice = (problem, f"{mend.capitalize()}.") if problem else (f"{line.how}: {line.why}", "")
        lines.append(Finding(f"{engine}: {line.function}", problem is None, detail, advice))
    return lines
