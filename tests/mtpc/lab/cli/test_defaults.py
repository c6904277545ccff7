"""What an option is unless it is given: what the library takes, and what made the weights that ship."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from mtpc.draft import MAX_DRAFTS, MAX_TREE_NODES
from mtpc.lab.cli.evaluate import evaluate
from mtpc.lab.cli.main import app
from mtpc.lab.cli.prove import prove
from mtpc.lab.cli.recipes import bytecircuit as bytecircuit
from mtpc.lab.cli.recipes import gumiho as gumiho
from mtpc.lab.cli.recipes import mtpc as mtpc
from mtpc.lab.evaluation.evaluate import EvaluationPlan
from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_NODES
from mtpc.lab.prove.plan import ProvePlan
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.methods.bytecircuit import ByteDrafterConfig
from mtpc.methods.mtpc import MTPCConfig
from mtpc.parallel.config import ParallelConfig

DEFAULTS = Path(__file__).parent / "defaults.json"
SHIPPED = Path(__file__).parents[4] / "weights" / "byte-target" / "provenance.json"
RENAMED = {"steps": "updates", "tokens_per_step": "tokens_per_update", "warmup_steps": "warmup"}


def defaults_of(command: Callable[..., Any]) -> dict[str, Any]:
    """By option, of those that need not be given."""
    given = {name: option.default for name, option in signature(command).parameters.items()}
    return {name: value for name, value in given.items() if value is not Parameter.empty}


def defaults_of_fields(made: type) -> dict[str, Any]:
    """By field, of those that need not be given."""
    if issubclass(made, BaseModel):
        return {name: field.default for name, field in made.model_fields.items() if not field.is_required()}
    return {each.name: each.default for each in dataclasses.fields(made) if each.default is not dataclasses.MISSING}


@pytest.mark.parametrize(
    ("command", "made", "apart", "options"),
    [
        (mtpc.train, MTPCConfig, {"trunk_size", "leaves", "token_input", "markov_rank"}, 3),  # by kind of target
        (bytecircuit.train, ByteDrafterConfig, {"trunk_size"}, 4),
        (gumiho.train, ParallelConfig, {"rank"}, 1),
        (evaluate, EvaluationPlan, {"temperatures"}, 4),
        (prove, ProvePlan, set(), 6),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_options_have_the_defaults_of_what_they_make(
    command: Callable[..., Any], made: type, apart: set[str], options: int
) -> None:
    found, expected = defaults_of(command), defaults_of_fields(made)
    both = (found.keys() & expected.keys()) - apart
    assert {name: found[name] for name in both} == {name: expected[name] for name in both}
    assert len(both) == options


def test_the_byte_target_is_made_by_default_as_the_first_stage_of_the_one_that_ships() -> None:
    recipe = json.loads(SHIPPED.read_text())["widened_from"]["recipe"]
    recipe = {RENAMED.get(name, name): value for name, value in recipe.items()}
    assert defaults_of_fields(ByteTargetConfig) == recipe


def test_circuits_are_trained_by_default_as_the_readme_says() -> None:
    found = defaults_of(mtpc.train)
    assert (found["rank"], found["trunk_size"]) == ((16,), 768)


def test_options_allow_as_many_drafts_as_drafters() -> None:
    assert (MOST_DRAFTS, MOST_NODES) == (MAX_DRAFTS, MAX_TREE_NODES)


def test_defaults_that_users_count_on() -> None:
    """Of every option of every command: a change is made here as well, and listed in the changelog."""
    commands = {"": typer.main.get_command(app)}
    found: dict[str, dict[str, Any]] = {}
    while commands:
        words, command = commands.popitem()
        if isinstance(command, typer.core.TyperGroup):
            commands |= {f"{words} {name}".strip(): each for name, each in sub_commands(command).items()}
        else:
            options = [each for each in command.params if each.default not in (None, (), [])]
            found[words] = {each.opts[0]: plain(each.default) for each in options}
    assert json.loads(DEFAULTS.read_text()) == found


def sub_commands(group: Any) -> dict[str, Any]:
    """The commands of a group, some of which are read from entry points."""
    context = group.make_context("mtpc", [], resilient_parsing=True)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def plain(value: Any) -> Any:
    """As JSON holds it; a path by its end, as its beginning is where the package lies."""
    if isinstance(value, Path):
        return value.name if value.is_absolute() else str(value)
    return [plain(each) for each in value] if isinstance(value, tuple | list) else value
