"""Two more draft methods, for tests: one reads another hidden state, one drafts in a vocabulary of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hybrid import Hybrid, HybridConfig
from mtpc.files.target import VocabSize
from mtpc.methods.gumiho import Gumiho, GumihoConfig


class BetweenConfig(HybridConfig):
    """The section "between"."""

    below: Annotated[int, Field(ge=1, le=1 << 12)]  # the target's layer whose input is read

    @property
    def state_below(self) -> int:
        """That layer."""
        return self.below


class Between(Hybrid):
    """Reads a state between the target's layers."""

    name = "between"
    title = "a drafter between layers"
    summary = "one step of a layer from a state between the target's, then a circuit"
    architecture = "EagleBetweenForCausalLM"
    algorithm = "BETWEEN"
    config = BetweenConfig


class SubsetConfig(GumihoConfig):
    """The section "subset"."""

    tokens: VocabSize  # of its own output head

    @property
    def has_own_embedding(self) -> bool:
        """Yes."""
        return True

    @property
    def own_vocabulary(self) -> int:
        """The tokens of its head."""
        return self.tokens


class Subset(Gumiho):
    """Drafts from a smaller vocabulary, through an output head of its own."""

    name = "subset"
    title = "a subset drafter"
    summary = "layers and heads in parallel over some of the target's tokens"
    architecture = "EagleSubsetForCausalLM"
    algorithm = "SUBSET"
    config = SubsetConfig
