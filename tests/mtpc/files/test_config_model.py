"""Errors in values are one sentence that names the key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, short_repr, validated


class Left(Strict):
    """One of two kinds."""

    side: Literal["left"]
    size: Annotated[int, Field(ge=1, le=5)]


class Right(Strict):
    """The other."""

    side: Literal["right"]


class Both(Strict):
    """What is tried."""

    of: list[Annotated[Left | Right, Field(discriminator="side")]] = Field(min_length=1)
    only: Right | None = None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "it is wrong at 'of': the key 'of' is missing."),
        ({"of": []}, "it is wrong at 'of': list should have at least 1 item, not 0."),
        ({"of": [{"side": "right"}], "at": 1}, "it is wrong at 'at': unknown key 'at'; the keys are of, only."),
        ({"of": [{"side": "right", "at": 1}]}, "it is wrong at 'of.0.at': unknown key 'at'."),
        (
            {"of": [{"side": "right"}], "only": {"side": "right", "at": 1}},
            "it is wrong at 'only.at': unknown key 'at'; the keys are side.",
        ),
        ({"of": [{"side": "right"}, {"side": "left"}]}, "it is wrong at 'of.1.size': the key 'size' is missing."),
        (
            {"of": [{"side": "left", "size": 9}]},
            "it is wrong at 'of.0.size': it is 9, but should be less than or equal to 5.",
        ),
        ({"of": [{}]}, "it is wrong at 'of.0': the key 'side' is missing."),
        ({"of": [{"side": "up"}]}, "it is wrong at 'of.0': its 'side' is 'up', but should be one of 'left', 'right'."),
    ],
)
def test_where_and_what(values: Any, sentence: str) -> None:
    with pytest.raises(MTPCError) as caught:
        validated(Both, values, "it")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "value", ["a" * 10**6, "a\nb", 10**4000, [[[["deep"] * 99] * 99] * 99], {"a": {"b": "c" * 999}}]
)
def test_values_are_shown_on_one_short_line(value: object) -> None:
    assert len(short_repr(value)) < 1000
    assert "\n" not in short_repr(value)


class Sizes(Strict):
    """Of something."""

    width: int


def test_strict_values_keep_their_types_and_stay() -> None:
    sizes = Sizes(width=3)
    with pytest.raises(ValidationError):
        sizes.width = 4
    for wrong in ({"width": "3"}, {"width": 3, "height": 4}, {"width": True}):
        with pytest.raises(ValidationError):
            Sizes.model_validate(wrong)
