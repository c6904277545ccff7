"""Commands whose options are declared once, as the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from typing import Any, get_args, get_type_hints

import typer
from typer.models import ParameterInfo

from mtpc.errors import MTPCError


@dataclass(frozen=True)
class After:
    """Mark of an option, in its `Annotated`, that comes after another one and not where its field is declared.

    Attributes:
        option: Name of the other option's field or parameter.
    """

    option: str


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a typer command in which parameters that are dataclasses are replaced by an option for each field.

    A field is an option where its type is `Annotated` with `typer.Option` or `typer.Argument`; its default becomes the
    option's default. Fields that are dataclasses are expanded in turn, and all other fields keep their default. The
    options come in the order of the fields, see also `After`. An option that several dataclasses have is one option, as
    the first of them declares it.

    Args:
        command: A function whose parameters are typer options or dataclasses.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    made = {name: each.annotation for name, each in parameters.items() if is_dataclass(each.annotation)}
    declared = (
        option
        for name, each in parameters.items()
        for option in (_options(made[name]) if name in made else [each.replace(kind=Parameter.KEYWORD_ONLY)])
    )
    by_name: dict[str, Parameter] = {}
    for option in declared:
        by_name.setdefault(option.name, option)
    options = list(by_name.values())

    for option in options.copy():
        for mark in (each for each in get_args(option.annotation)[1:] if isinstance(each, After)):
            options.remove(option)
            options.insert(1 + [each.name for each in options].index(mark.option), option)

    def run(**given: Any) -> None:
        settings = {name: _make(kind, given) for name, kind in made.items()}
        command(**settings, **{name: given[name] for name in parameters if name not in made})

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__annotations__ = {option.name: option.annotation for option in options}
    vars(run)["__signature__"] = Signature(options)
    return run


def option_names(kind: Any) -> set[str]:
    """Return the names of the parameters that `with_settings` makes of a dataclass.

    Args:
        kind: The dataclass.
    """
    return {option.name for option in _options(kind)}


def refuse_options(invocation: typer.Context, names: Collection[str], reason: str) -> None:
    """Refuse options that a command's other options leave without effect.

    Args:
        invocation: The running command.
        names: Names of parameters.
        reason: When they have no effect, as "with --data".

    Raises:
        MTPCError: One of them is on the command line.
    """
    for option in invocation.command.params:
        source = invocation.get_parameter_source(option.name or "")
        if option.name in names and source is not None and source.name == "COMMANDLINE":
            raise MTPCError(f"{option.opts[0]} has no effect {reason}")


def _fields(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of the fields that are options or dataclasses, inherited ones last."""
    inherited = {each.name for base in kind.__mro__[1:] if is_dataclass(base) for each in fields(base)}
    hints = get_type_hints(kind, include_extras=True)
    for each in sorted(fields(kind), key=lambda each: each.name in inherited):
        hint = hints[each.name]
        if is_dataclass(hint) or any(isinstance(other, ParameterInfo) for other in get_args(hint)[1:]):
            yield each.name, hint, Parameter.empty if each.default is MISSING else each.default


def _options(kind: Any) -> Iterator[Parameter]:
    for name, hint, default in _fields(kind):
        if is_dataclass(hint):
            yield from _options(hint)
        else:
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _make(kind: Any, given: Mapping[str, Any]) -> Any:
    """Build the dataclass from the given options."""
    return kind(**{name: _make(hint, given) if is_dataclass(hint) else given[name] for name, hint, _ in _fields(kind)})
