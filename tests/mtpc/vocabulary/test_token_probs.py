"""q of all tokens in one pass over the trie: what the walk states for each, for every circuit over bytes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.parallel.byte_circuit import ByteCircuit
from mtpc.vocabulary.token_probs import State, TokenProbs
from mtpc.vocabulary.token_trie import END, NextByteProbs, TokenTrie, token_trie
from tests.mtpc.vocabulary.test_token_trie import random_counts, random_drafter, random_vocabulary
from tests.oracles.cases import KINDS, sum_shapes

ROWS = 3


def random_params(kind: str, window: int, rank: int, symbols: int) -> CircuitParams:
    """float64; only a few bytes are likely, so that the symbol for the end matters."""
    generator = torch.Generator().manual_seed(window)
    shapes = ((window, rank, symbols), *sum_shapes(kind, window, rank))
    leaves, *sums = (torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64) * 1.5 for shape in shapes)
    leaves[..., [*b"ab\xff", *range(END, symbols)]] += 5.0
    return CircuitParams(leaves.log_softmax(-1), tuple(each.log_softmax(-1) for each in sums))


def by_conditionals(kind: str, params: CircuitParams, row: int) -> NextByteProbs:
    """One row's next symbols, from the circuit's conditionals of whole windows."""
    circuit = build_circuit(kind, params.leaves.shape[1], params.leaves.shape[2])
    alone = CircuitParams(params.leaves[row : row + 1], tuple(each[row : row + 1] for each in params.sums))

    def probs(text: bytes) -> np.ndarray | None:
        if len(text) >= circuit.window:
            return None
        window = torch.tensor([[*text, *[0] * (circuit.window - len(text))]])
        return circuit.conditionals(alone, window)[0, len(text)].exp().numpy()

    return probs


def stated(trie: TokenTrie, drafter: NextByteProbs) -> np.ndarray:
    """By one walk per token."""
    return np.exp([trie.log_prob(token, drafter) for token in range(len(trie.node_of))])


@pytest.mark.parametrize("kind", KINDS)
def test_circuits_over_bytes(kind: str) -> None:
    """Windows shorter and longer than the tokens, with and without a symbol for the end."""
    tokens = random_vocabulary(4)
    trie = token_trie(tokens, random_counts(4, len(tokens.tokens)))
    for window, symbols in product((1, 3, 6), (256, 257)):
        rank = 1 if kind == "ff" else 3
        params = random_params(kind, window, rank, symbols)
        q = TokenProbs(trie)(ByteCircuit(build_circuit(kind, window, rank), params))
        assert q.shape == (ROWS, len(tokens.tokens)) and q.dtype == torch.float64
        assert q.sum(1).tolist() == pytest.approx([1.0] * ROWS, abs=1e-12)
        for row in range(ROWS):
            expected = stated(trie, by_conditionals(kind, params, row))
            assert q[row].numpy() == pytest.approx(expected, rel=1e-9, abs=1e-15)


class Remembered:
    """A drafter whose state is the text itself, as a number in base 256; any next-byte probabilities."""

    def __init__(self, drafter: NextByteProbs, symbols: int) -> None:
        self.drafter, self.window, self.has_end = drafter, 7, symbols > END

    def start(self) -> State:
        return (torch.zeros(1, 1, dtype=torch.int64),)

    def probs(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> Tensor:
        rows = [self.drafter(int(number).to_bytes(depth, "big")) for number in state[0][0]]
        unknown = np.full(257 if self.has_end else 256, np.nan)
        known = torch.from_numpy(np.stack([unknown if row is None else row for row in rows]))
        return known[texts, symbols][None]

    def advance(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> State:
        return (state[0][:, texts] * 256 + symbols,)


def test_drafters_with_zeros_and_texts_that_they_cannot_write() -> None:
    for seed, symbols in product(range(5), (256, 257)):
        tokens = random_vocabulary(seed)
        trie, drafter = token_trie(tokens, random_counts(seed, len(tokens.tokens))), random_drafter(seed, symbols)
        q = TokenProbs(trie)(Remembered(drafter, symbols))[0].numpy()
        assert q == pytest.approx(stated(trie, drafter), rel=1e-9, abs=1e-15)
        assert (q == 0).any() and q.sum() == pytest.approx(1.0, abs=1e-12)


def test_single_precision_and_parameters_of_a_head() -> None:
    """float32 gives a distribution in float64 that is near the exact one; half precision is computed in float32."""
    trie = token_trie(random_vocabulary(4))
    params = random_params("hmm", 6, 3, 257)
    exact = TokenProbs(trie)(ByteCircuit(build_circuit("hmm", 6, 3), params))
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        rounded = CircuitParams(params.leaves.to(dtype), tuple(each.to(dtype) for each in params.sums))
        q = TokenProbs(trie)(ByteCircuit(build_circuit("hmm", 6, 3), rounded))
        assert q.sum(1).tolist() == pytest.approx([1.0] * ROWS, abs=1e-12)
        assert (q - exact).abs().sum(1).max() < near
