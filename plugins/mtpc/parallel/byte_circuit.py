"""A circuit over bytes as a drafter of a subword target's tokens, see `mtpc.vocabulary.token_probs`."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.base import State
from mtpc.vocabulary.token_trie import END


class ByteCircuit:
    """The states of a circuit whose leaves are over 256 bytes, or these and `END`.

    It implements `mtpc.vocabulary.token_probs.ByteStates`. A circuit of window n covers tokens of n bytes, or of n - 1
    with `END`.

    Args:
        circuit: The structure.
        params: Of B circuits, V = 256 or 257.
    """

    def __init__(self, circuit: Circuit, params: CircuitParams) -> None:
        self.circuit = circuit
        self.params = params.upcast()
        self._leaf_probs = self.params.leaves.exp()
        self.window = circuit.window
        self.has_end = params.leaves.shape[-1] > END

    def start(self) -> State:
        """Return the state of the empty text."""
        return self.circuit.start(self.params)

    def probs(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> Tensor:
        """Return q(symbol | text), float [B, C]; for the arguments see `ByteStates.probs`."""
        leaves = self._leaf_probs[:, depth].transpose(1, 2)  # [B, V, R]
        return torch.einsum("bcr,bcr->bc", state[-1].softmax(-1)[:, texts], leaves[:, symbols])

    def advance(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> State:
        """Return the states of C texts with one more symbol each; for the arguments see `ByteStates.probs`."""
        evidence = self.params.leaves[:, depth].transpose(1, 2)[:, symbols]  # [B, C, R]
        return self.circuit.advance(self.params.sums, depth, tuple(each[:, texts] for each in state), evidence)
