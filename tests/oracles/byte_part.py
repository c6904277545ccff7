"""A circuit over bytes written out from its definition: every path of its latents, every branch of the vocabulary."""

from __future__ import annotations

from itertools import product

import numpy as np
from torch import Tensor

from mtpc.parallel.config import ByteCircuitConfig
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.oracles.circuit_part import CircuitPartOracle

SYMBOLS, END = 257, 256
UNIFORM = 1e-6


class BytePartOracle(CircuitPartOracle):
    """The law of the token after some that are known; windows and ranks must be small.

    weights: by their names in the head.
    """

    def __init__(self, config: ByteCircuitConfig, weights: dict[str, Tensor], tokens: TokenBytes) -> None:
        super().__init__(config, weights)
        self.tokens, self.window = tokens, config.window
        self.texts = {text: number for text, number in tokens.by_bytes().items() if len(text) < config.window}
        self.vocab_size = config.vocab_size
        self._circuits: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._laws: dict[tuple[object, ...], np.ndarray] = {}

    def law(self, state: Tensor, known: list[int], temperature: float = 1.0) -> np.ndarray:
        """[V], float64, of the token after ``known``, of which ``state`` [d] predicted the first."""
        key = (*state.tolist(), *known, temperature)
        if key not in self._laws:
            self._laws[key] = self._written_out(self._circuit(state, temperature), self.symbols(known))
        return self._laws[key]

    def masses(self, state: Tensor, tokens: list[int]) -> list[float]:
        """The log-probability of the symbols of each beginning of some tokens, as far as they lie in the window."""
        circuit = self._circuit(state, 1.0)
        begun = [self.symbols(tokens[: count + 1])[: self.window] for count in range(len(tokens))]
        return [float(np.log(self._prefix(circuit, symbols))) for symbols in begun]

    def symbols(self, tokens: list[int]) -> list[int]:
        """Bytes and ends."""
        found: list[int] = []
        for token in tokens:
            text = self.tokens.tokens[token] if token < len(self.tokens.tokens) else None
            found += [*(text or b""), END]
        return found

    def _written_out(self, circuit: tuple[np.ndarray, np.ndarray], before: list[int]) -> np.ndarray:
        law = np.zeros(self.vocab_size)
        for text, number in self.texts.items():
            q = 1.0
            for length in range(len(text) + 1):
                prefix, branch = text[:length], text[length] if length < len(text) else END
                branches = {each[length] for each in self.texts if each.startswith(prefix) and len(each) > length}
                branches |= {END} if prefix in self.texts else set()
                after = {symbol: self._prefix(circuit, [*before, *prefix, symbol]) for symbol in branches}
                q *= after[branch] / sum(after.values())
            law[number] = q
        return law

    def _prefix(self, circuit: tuple[np.ndarray, np.ndarray], symbols: list[int]) -> float:
        """The mass of the symbols; those beyond the window are uniform."""
        weights, leaves = circuit  # [Z], [Z, n, 257]
        inside = symbols[: self.window]
        each = leaves[:, range(len(inside)), inside].prod(1)
        return float(weights @ each) * SYMBOLS ** -(len(symbols) - len(inside))

    def _circuit(self, state: Tensor, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """The probability of each path of components, [Z], and the leaves along it, [Z, n, 257]."""
        key = (*state.tolist(), temperature)
        if key not in self._circuits:
            features = self._trunk(state.double(), 0)
            leaves = (self._leaves(features) / temperature).softmax(-1).numpy()  # [n, R, 257]
            leaves = (1 - UNIFORM) * leaves + UNIFORM / SYMBOLS
            sums = [(logits / temperature).softmax(-1).numpy() for logits in self._sums(features)]
            paths = list(self._paths(leaves.shape[1], sums))
            weights = np.array([weight for _, weight in paths])
            along = np.stack([leaves[range(self.window), path] for path, _ in paths])
            self._circuits[key] = weights, along
        return self._circuits[key]

    def _paths(self, rank: int, sums: list[np.ndarray]) -> list[tuple[list[int], float]]:
        if self.config.circuit == "ff":
            return [([0] * self.window, 1.0)]
        if self.config.circuit == "cp":
            return [([z] * self.window, sums[0][z]) for z in range(rank)]
        initial, transitions = sums
        return [
            (list(z), initial[z[0]] * np.prod([transitions[i, z[i], z[i + 1]] for i in range(self.window - 1)]))
            for z in product(range(rank), repeat=self.window)
        ]
