"""The probabilities of all tokens of a target under a drafter over bytes, in one pass over the vocabulary's trie."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from mtpc.vocabulary.token_trie import END, TokenTrie

State = tuple[Tensor, ...]


class ByteStates(Protocol):
    """A drafter over bytes that after any text is in a state of a few numbers, as the forward message of an HMM.

    The states of P texts of the same length are tensors [B, P, ...]. Protocol: `start` gives those of the empty text;
    then for each depth `probs` and `advance`.

    Attributes:
        window: Symbols that it covers; beyond, the trie's weights decide.
        has_end: Whether it has the symbol `END`.
    """

    window: int
    has_end: bool

    def start(self) -> State:
        """Return the state of the empty text, P = 1."""

    def probs(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> Tensor:
        """Return the probability that a symbol follows a text.

        Args:
            state: Of P texts of this length.
            depth: Bytes of the texts.
            texts: int64 [C], which of the P texts.
            symbols: int64 [C].

        Returns:
            float [B, C]. NaN after a text that the drafter cannot write.
        """

    def advance(self, state: State, depth: int, texts: Tensor, symbols: Tensor) -> State:
        """Return the states of C texts with one more symbol each; arguments as for `probs`."""


class _Level(NamedTuple):
    """The P nodes with children at a depth, and their C children, as indices and tensors of one device."""

    stop: Tensor  # float64 [P]
    pause: Tensor  # float64 [E]
    ending: Tensor  # int64 [E], nodes at which a token ends
    ending_tokens: Tensor  # int64 [E]
    parents: Tensor  # int64 [C], of the P
    symbols: Tensor  # int64 [C]
    shares: Tensor  # float64 [C], of the children by their weights
    leaves: Tensor  # int64 [L], of the C
    leaf_tokens: Tensor  # int64 [L]
    inner: Tensor  # int64 [C - L], of the C: the nodes of the next level


class TokenProbs:
    """Computes q over the vocabulary, as `TokenTrie.log_prob` states it, for a batch of drafters.

    Args:
        trie: The target's vocabulary.
        device: Where the drafters' tensors are.
    """

    def __init__(self, trie: TokenTrie, device: torch.device | str = "cpu") -> None:
        self.vocab_size = len(trie.node_of)
        self._levels = [_level(trie, depth, torch.device(device)) for depth in range(trie.height)]

    def __call__(self, drafter: ByteStates) -> Tensor:
        """Compute q of every token.

        Time and memory of a level are those of `ByteStates` for its nodes.

        Args:
            drafter: Of B requests.

        Returns:
            float64 [B, V], which sums to 1.
        """
        state = drafter.start()
        reach = torch.ones(len(state[0]), 1, dtype=torch.float64, device=state[0].device)  # [B, P]
        found = reach.new_zeros(len(reach), self.vocab_size)
        for depth, level in enumerate(self._levels):
            shares, stop = level.shares, level.stop.expand_as(reach)
            if depth < drafter.window:
                drafted = drafter.probs(state, depth, level.parents, level.symbols).double()  # [B, C]
                mass = torch.zeros_like(reach).scatter_add_(1, level.parents.expand_as(drafted), drafted)
                shares = torch.where((mass > 0)[:, level.parents], drafted / mass[:, level.parents], shares)
                if drafter.has_end:
                    end = torch.zeros_like(reach)
                    symbols = torch.full_like(level.ending, END)
                    end[:, level.ending] = drafter.probs(state, depth, level.ending, symbols).double()
                    stop = torch.where(mass + end > 0, end / (mass + end), stop)
                else:  # NaN where the drafter does not know
                    ended = 1.0 - mass[:, level.ending].clamp_max(1.0) * (1.0 - level.pause)
                    stop = stop.clone()
                    stop[:, level.ending] = torch.where(ended.isnan(), stop[:, level.ending], ended)
                if depth + 1 < drafter.window:
                    below = level.inner
                    state = drafter.advance(state, depth, level.parents[below], level.symbols[below])
            found[:, level.ending_tokens] = (reach * stop)[:, level.ending]
            reach = (reach * (1.0 - stop))[:, level.parents] * shares
            found[:, level.leaf_tokens] = reach[:, level.leaves]
            reach = reach[:, level.inner]
        return found


def _level(trie: TokenTrie, depth: int, device: torch.device) -> _Level:
    nodes = np.arange(trie.levels[depth], trie.levels[depth + 1])
    nodes = nodes[trie.children[nodes + 1] > trie.children[nodes]]  # [P]
    below = np.arange(trie.levels[depth + 1], trie.levels[depth + 2])  # [C]
    parents = np.searchsorted(nodes, trie.parent[below])
    is_leaf = trie.children[below + 1] == trie.children[below]
    ending = np.flatnonzero(trie.token[nodes] >= 0)
    arrays = (
        trie.stop[nodes],
        trie.pause[nodes[ending]],
        ending,
        trie.token[nodes[ending]],
        parents,
        trie.byte[below],
        trie.weight[below] / np.bincount(parents, trie.weight[below])[parents],
        np.flatnonzero(is_leaf),
        trie.token[below[is_leaf]],
        np.flatnonzero(~is_leaf),
    )
    return _Level(*(torch.from_numpy(array).to(device) for array in arrays))
