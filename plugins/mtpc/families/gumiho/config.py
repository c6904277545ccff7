"""The section "gumiho" of config.json: serial layers, their steps, and the heads in parallel behind them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from mtpc.draft import MOST
from mtpc.serial.config import SerialConfig
from mtpc.window.config import ParallelConfig

EAGLE_DRAFTS = 5  # of a drafter without parallel heads, unless the user says otherwise


class GumihoConfig(SerialConfig):
    """See `SerialConfig`: the layers of the serial part."""

    steps: Annotated[int, Field(ge=1, le=MOST)] = 2  # s, drafts of the serial part
    parallel: ParallelConfig | None = None  # None: all drafts are the serial part's, as many as are asked for (EAGLE)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.parallel is not None and self.steps + self.parallel.positions > MOST:
            raise ValueError(f"steps and parallel.positions must be no more than {MOST} together")
        return self

    @property
    def serial(self) -> SerialConfig:
        """The layers."""
        return self

    @property
    def serial_steps(self) -> int | None:
        """Two in the paper; without parallel heads as many as are asked for."""
        return None if self.parallel is None else self.steps

    @property
    def max_drafts(self) -> int:
        """Of both parts; without parallel heads as many as any drafter may draft."""
        return MOST if self.parallel is None else self.steps + self.parallel.positions

    @property
    def num_drafts(self) -> int:
        """Of both parts."""
        return EAGLE_DRAFTS if self.parallel is None else self.max_drafts
