"""MTPC over bytes: a circuit that spells the tokens of a subword target (section "bytecircuit" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mtpc.draft import MAX_DRAFTS
from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.config import ByteCircuitConfig
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class ByteDrafterConfig(ParallelOnly, ByteCircuitConfig):
    """The keys of a byte circuit, in addition to those of a `ByteCircuitConfig`.

    Attributes:
        num_drafts: K, draft tokens per verification step unless the user sets it.
    """

    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 3

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_drafts > self.max_drafts:
            raise ValueError(f"a window of {self.window} symbols holds at most {self.max_drafts} draft tokens")
        return self


class ByteCircuit(DraftMethod):
    """Circuits of MTPC whose leaves are over 256 bytes and the end of a token."""

    name = "bytecircuit"
    title = "a byte circuit"
    summary = "MTPC's circuits over bytes, which spell the tokens of a subword target"
    architecture = "EagleByteCircuitForCausalLM"
    algorithm = "BYTECIRCUIT"
    config = ByteDrafterConfig

    def parallel(self, config: ByteDrafterConfig) -> ParallelPart:
        """Build the untrained circuit part."""
        return ByteCircuitPart(config)

    def tensor_name(self, name: str) -> str:
        """Return the tensor's name without the name of the part."""
        return name.removeprefix("parallel.")

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return circuit type and sizes."""
        config, part = drafter.config, drafter.parallel
        assert isinstance(config, ByteDrafterConfig) and isinstance(part, ByteCircuitPart)
        return {
            "circuit": f"{config.circuit} over 256 bytes and the end of a token",
            "window n": f"{config.window} symbols, those of the target's next token included",
            "draft tokens": f"{config.num_drafts} unless the server sets it, at most {config.max_drafts}",
            "rank R": str(config.rank),
            "leaves": config.leaves,
            "drafts": f"{int(part.byte_vocabulary.drafted.sum()):,} tokens, those of at most {config.window - 1} bytes",
        }
