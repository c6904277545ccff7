"""Rotary embedding types and their keys, as transformers and both engines read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from mtpc.files.config_model import Strict

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
MAX_POSITIONS = 1 << 24  # engines store a sine and a cosine of each position
Positions = Annotated[int, Field(ge=1, le=MAX_POSITIONS)]


class DefaultRope(Strict):
    """Unscaled rotary embedding."""

    rope_type: Literal["default"]
    rope_theta: Positive


class ScaledRope(Strict):
    """Positions scaled by one factor, always ("linear") or beyond the trained length ("dynamic")."""

    rope_type: Literal["linear", "dynamic"]
    rope_theta: Positive
    factor: Factor


class YarnRope(Strict):
    """YaRN: scaled by frequency."""

    rope_type: Literal["yarn"]
    rope_theta: Positive
    factor: Factor
    original_max_position_embeddings: Positions
    attention_factor: Positive | None = None
    beta_fast: Positive | None = None
    beta_slow: Positive | None = None
    mscale: Positive | None = None
    mscale_all_dim: Positive | None = None
    truncate: bool | None = None


class Llama3Rope(Strict):
    """Scaled by frequency as in Llama 3.1."""

    rope_type: Literal["llama3"]
    rope_theta: Positive
    factor: Factor
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Positions


class LongRope(Strict):
    """Scaled by one factor per frequency."""

    rope_type: Literal["longrope"]
    rope_theta: Positive
    short_factor: list[Positive] = Field(fail_fast=True)
    long_factor: list[Positive] = Field(fail_fast=True)
    original_max_position_embeddings: Positions
    factor: Factor | None = None
    attention_factor: Positive | None = None


ROPE_CONFIGS: TypeAdapter[Strict] = TypeAdapter(
    Annotated[DefaultRope | ScaledRope | YarnRope | Llama3Rope | LongRope, Field(discriminator="rope_type")]
)


def check_rope(values: dict[str, Any]) -> dict[str, Any]:
    """Validate ``rope_parameters`` and return them unchanged."""
    ROPE_CONFIGS.validate_python(values)
    return values
