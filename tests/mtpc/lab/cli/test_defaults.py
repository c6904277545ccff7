"""What an option is unless it is given: what the library takes, and what made the weights that ship."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mtpc.draft import MAX_DRAFTS
from mtpc.lab.cli.evaluate import evaluate
from mtpc.lab.cli.prove import prove
from mtpc.lab.cli.recipes import gumiho as gumiho
from mtpc.lab.cli.recipes import mtpc as mtpc
from mtpc.lab.evaluation.evaluate import EvaluationPlan
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.prove.plan import ProvePlan
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.methods.mtpc import MTPCConfig
from mtpc.parallel.config import ParallelConfig

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
        (mtpc.train, MTPCConfig, {"trunk_size"}, 5),  # the paper's circuits have none
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
    assert (found["rank"], found["trunk_size"]) == (16, 768)


def test_options_allow_as_many_drafts_as_drafters() -> None:
    assert MOST_DRAFTS == MAX_DRAFTS
