"""What a circuit window is: the circuit, its sizes, and the head that parameterises it."""

from __future__ import annotations

from dataclasses import dataclass

from mtpc.circuits import build_circuit
from mtpc.directory.checked_json import check_types
from mtpc.errors import MTPCError


@dataclass(frozen=True, kw_only=True)
class CircuitConfig:
    """The keys of a circuit window in a drafter's section of config.json."""

    circuit: str  # "ff", "cp", "hmm" or "btree"
    window: int  # n, tokens of one window, the token that is evidence included
    rank: int  # R, components per position
    hidden_size: int  # d of the target
    vocab_size: int  # V of the target
    leaves: str = "shared"  # "table" (paper) or "shared" (one unembedding for all leaves)
    leaf_features: int = 128  # m of shared leaves
    component_features: int = 32  # k of shared leaves
    sum_features: int = 32  # 0: sum weights straight from the hidden state (paper)
    trunk_size: int = 0  # width of the residual layer in front, 0: none (paper)
    token_input: bool = False  # the trunk reads the first token; the circuit then starts after it

    def __post_init__(self) -> None:
        check_types(self)
        if self.leaves not in ("table", "shared"):
            raise MTPCError(f"leaves must be 'table' or 'shared', not {self.leaves!r}.")
        for name in ("hidden_size", "vocab_size", "leaf_features", "component_features"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("sum_features", "trunk_size"):
            if getattr(self, name) < 0:
                raise MTPCError(f"{name} must not be negative, but is {getattr(self, name)}.")
        if self.token_input and (self.trunk_size == 0 or self.window < 2):
            raise MTPCError(
                "token_input needs a trunk_size above 0, where the token enters, and a window of at least 2."
            )
        build_circuit(self.circuit, self.circuit_window, self.rank)

    @property
    def circuit_window(self) -> int:
        """Tokens that the circuit is a distribution over, the last ones of the window."""
        return self.window - 1 if self.token_input else self.window
