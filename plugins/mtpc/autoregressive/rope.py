"""The kinds of rotary embeddings, with the keys that each needs: those that transformers and both engines know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from mtpc.files.config_model import Strict

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
MAX_POSITIONS = 1 << 24  # at most: engines hold a sine and a cosine of each
Positions = Annotated[int, Field(ge=1, le=MAX_POSITIONS)]


class DefaultRope(Strict):
    """Rotated by base and position alone."""

    rope_type: Literal["default"]
    rope_theta: Positive


class ScaledRope(Strict):
    """Stretched as a whole, or from some length on."""

    rope_type: Literal["linear", "dynamic"]
    rope_theta: Positive
    factor: Factor


class YarnRope(Strict):
    """Stretched by frequency."""

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
    """Stretched by frequency, as Llama 3.1 is."""

    rope_type: Literal["llama3"]
    rope_theta: Positive
    factor: Factor
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Positions


class LongRope(Strict):
    """Stretched by a factor for each frequency."""

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
    """The keys as they are: transformers and the engines read them by their names."""
    ROPE_CONFIGS.validate_python(values)
    return values
