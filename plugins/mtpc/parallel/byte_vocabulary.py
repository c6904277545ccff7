"""A target's vocabulary in symbols: the 256 bytes, and `END` after the last byte of each token.

A drafter over symbols drafts whole tokens: its next symbol is renormalized over the branches of the vocabulary's trie.
The branches are the bytes that lead on to a token, and `END` where a token ends. So the probability of a token is a
product of the drafter's conditionals, and one pass over the trie, depth by depth, computes those of all tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.vocabulary.token_bytes import TokenBytes
from mtpc.vocabulary.token_trie import token_trie

END = 256  # the symbol after the 256 bytes: the token ends
SYMBOLS = END + 1
# Kinds of tokens as they are stored, see `TokenBytes`; the last for ids behind those of the tokenizer.
TEXT, SPECIAL, FALLBACK, NOTHING, PADDING = range(5)
FIXED_POINT = 2.0**52  # of probabilities as whole numbers


class SymbolText(NamedTuple):
    """The first symbols of B texts.

    Attributes:
        symbols: int64 [B, N], any after the end of a text.
        length: int64 [B], known symbols, at most N.
    """

    symbols: Tensor
    length: Tensor

    @property
    def known(self) -> Tensor:
        """Which symbols are known, bool [B, N]."""
        return torch.arange(self.symbols.shape[1], device=self.length.device) < self.length[:, None]


class TrieLevel(NamedTuple):
    """The nodes of a depth above 0 in the arrays of `ByteVocabulary`: first those with children, then the others.

    Attributes:
        start: Index of the first node.
        inner: Number of nodes with children.
        end: Index after the last node.
    """

    start: int
    inner: int
    end: int


class ByteVocabulary(nn.Module):
    """The tokens of a target, as they are stored in a checkpoint, and their trie.

    A token without bytes, as a special one, is written as `END` alone, and is never drafted. Neither are all but one of
    the tokens with equal bytes, nor tokens of more than N symbols.

    Protocol: `set_tokens` or, after the stored tensors have been loaded, `loaded`; then all others.

    Args:
        vocab_size: V of the target's logits.
        num_bytes: Bytes of all tokens together.
        window: N, symbols of a `SymbolText`.

    Attributes:
        levels: The nodes of each depth from 1 on.
    """

    text: Tensor  # uint8 [bytes], of all tokens one after the other
    lengths: Tensor  # int32 [V], bytes of each token
    kinds: Tensor  # uint8 [V]
    # Of the M nodes but the root, in the order of `levels`:
    parent: Tensor  # int64 [M], among the nodes with children of the depth above
    symbol: Tensor  # int64 [M]
    ends: Tensor  # float32 [nodes with children, the root included], 1 where a token ends
    found_at: Tensor  # int64 [V], where `probs` finds each token's probability
    spelled: Tensor  # int16 [V, N], the symbols of each token
    sizes: Tensor  # int64 [V], their number, at most N

    def __init__(self, vocab_size: int, num_bytes: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("text", torch.zeros(num_bytes, dtype=torch.uint8))
        self.register_buffer("lengths", torch.zeros(vocab_size, dtype=torch.int32))
        self.register_buffer("kinds", torch.zeros(vocab_size, dtype=torch.uint8))
        self.levels: list[TrieLevel] = []

    def set_tokens(self, tokens: TokenBytes) -> None:
        """Set the tokens.

        Args:
            tokens: At most V.

        Raises:
            MTPCError: There are more than V, or none can be drafted.
        """
        count, kinds = len(tokens.tokens), [PADDING] * len(self.kinds)
        if count > len(kinds):
            raise MTPCError(f"the target's tokenizer has {count:,} tokens, but the model only {len(kinds):,}.")
        for number, each in enumerate(tokens.tokens):
            fallback = FALLBACK if number in tokens.fallback else TEXT
            kinds[number] = SPECIAL if number in tokens.special else NOTHING if each is None else fallback
        self.text.copy_(torch.tensor([*tokens.text_of(range(count))]))
        self.lengths.copy_(torch.tensor([len(each or b"") for each in tokens.tokens] + [0] * (len(kinds) - count)))
        self.kinds.copy_(torch.tensor(kinds))
        self._arrange()

    def loaded(self, path: Path, digest: str) -> None:
        """Check stored tokens, and prepare for drafting.

        Args:
            path: Their file, for the error.
            digest: What `TokenBytes.digest` must be.

        Raises:
            MTPCError: They are not the tokens of this digest.
        """
        if (
            bool((self.lengths < 0).any())
            or int(self.lengths.sum()) != len(self.text)
            or (self.tokens().digest() != digest)
        ):
            raise MTPCError(f"{path} does not hold the tokens that config.json was written for: train it again.")
        self._arrange()

    def tokens(self) -> TokenBytes:
        """Return the tokens."""
        text, ends = bytes(self.text.tolist()), self.lengths.cumsum(0).tolist()
        kinds = [kind for kind in self.kinds.tolist() if kind != PADDING]
        listed = (text[start:end] for start, end in zip([0, *ends], ends, strict=False))
        return TokenBytes(
            tuple(each if kind in (TEXT, FALLBACK) else None for each, kind in zip(listed, kinds, strict=False)),
            frozenset(number for number, kind in enumerate(kinds) if kind == SPECIAL),
            frozenset(number for number, kind in enumerate(kinds) if kind == FALLBACK),
        )

    def _arrange(self) -> None:
        """Make the trie and the symbols of each token from the stored tensors."""
        vocab_size, tokens = len(self.kinds), self.tokens()
        spelled = np.full((vocab_size, self.window), END, dtype=np.int16)
        for number, each in enumerate(tokens.tokens):
            some = (each or b"")[: self.window]
            spelled[number, : len(some)] = list(some)
        short = tokens._replace(
            tokens=tuple(each if len(each or b"") < self.window else None for each in tokens.tokens)
        )
        trie = token_trie(short, vocab_size=vocab_size)
        inner = trie.children[1:] > trie.children[:-1]
        places = np.zeros(len(inner), dtype=np.int64)  # of each node among those with children of its depth
        found = np.full(len(inner) + 1, len(inner))  # where `probs` finds each node; the last for no node
        self.levels, order, done = [], [], 0
        for first, last in zip(trie.levels[:-1], trie.levels[1:], strict=True):
            nodes = np.arange(first, last)
            above, below = nodes[inner[first:last]], nodes[~inner[first:last]]
            places[above] = np.arange(len(above))
            found[[*below, *above]] = done + np.arange(len(nodes))
            done += len(nodes)
            if first:
                self.levels.append(TrieLevel(first - 1, len(above), last - 1))
                order += [above, below]
        nodes = np.concatenate(order)
        made = {
            "parent": places[trie.parent[nodes]],
            "symbol": trie.byte[nodes],
            "ends": (trie.token[inner] >= 0).astype(np.float32),
            "found_at": found[trie.node_of],
            "spelled": spelled,
            "sizes": np.minimum(self.lengths.cpu().numpy().astype(np.int64) + 1, self.window),
        }
        for name, array in made.items():
            self.register_buffer(name, torch.from_numpy(array).to(self.kinds.device), persistent=False)

    @property
    def drafted(self) -> Tensor:
        """Which tokens can be drafted, bool [V]."""
        return self.found_at <= self.levels[-1].end

    def follow(self, text: SymbolText, tokens: Tensor) -> SymbolText:
        """Return texts with one more token each, int64 [B]; what is beyond N symbols is cut off."""
        places = torch.arange(self.window, device=tokens.device) - text.length[:, None]  # [B, N], in the token
        symbols = self.spelled[tokens].long().gather(1, places.clamp(0, self.window - 1))
        length = (text.length + self.sizes[tokens]).clamp_max(self.window)
        return SymbolText(torch.where(places < 0, text.symbols, symbols), length)

    def begin(self, tokens: Tensor) -> SymbolText:
        """Return texts of one token each, int64 [B]."""
        empty = tokens.new_zeros(len(tokens))
        return self.follow(SymbolText(empty[:, None].expand(-1, self.window), empty), tokens)

    def probs(self, belief: Tensor, leaves: Tensor, transitions: Tensor | None) -> Tensor:
        """Compute the probability of every token under a chain of latent components, one per symbol.

        The pass over the trie carries the distribution of the next symbol's component, given the symbols down to each
        node.

        Args:
            belief: Distribution of the first symbol's component, [B, R].
            leaves: Probabilities of the symbols at each depth under each component, positive, [B, D, 257, R]. D is at
                least the number of levels.
            transitions: Probabilities of the component at depth i + 1 given that at depth i, [B, D, R, R]. None: it
                stays the same.

        Returns:
            [B, V], which sums to 1 but for rounding.
        """
        belief, found, first = belief[:, None], [], 0  # [B, P, R] of the P nodes with children of a depth
        reach = torch.ones_like(belief[..., 0])  # [B, P]
        for depth, level in enumerate(self.levels):
            parents, symbols = (each[level.start : level.end] for each in (self.parent, self.symbol))  # of C children
            here = leaves[:, depth]  # [B, 257, R]
            joint = belief.index_select(1, parents).mul_(here.index_select(1, symbols))  # [B, C, R]
            children = joint.sum(-1)  # [B, C]
            ends = (belief @ here[:, END, :, None])[..., 0] * self.ends[first : first + belief.shape[1]]  # [B, P]
            share = reach / with_children(ends, parents, children)
            found.append(share * ends)
            reach = share.index_select(1, parents).mul_(children)
            first += belief.shape[1]
            found.append(reach[:, level.inner :])
            reach = reach[:, : level.inner]
            belief = joint[:, : level.inner].div_(children[:, : level.inner, None])
            if transitions is not None:
                belief = belief @ transitions[:, depth]
        found.append(reach.new_zeros(len(reach), 1))
        return torch.cat(found, 1).index_select(1, self.found_at)


def with_children(ends: Tensor, parents: Tensor, children: Tensor, exact: bool | None = None) -> Tensor:
    """Return the sum of each node's own probability and those of its children.

    On a GPU the order of a sum varies, and with it the rounding. Tensor-parallel ranks could then draft different
    tokens, so probabilities are added as whole numbers there.

    Args:
        ends: Each node's own, [B, P].
        parents: Node of each child, int64 [C].
        children: Their probabilities, [B, C], at least 2^-52.
        exact: Whether to add whole numbers; None: on a GPU.
    """
    parents = parents.expand_as(children)
    if not (children.is_cuda if exact is None else exact):
        return ends.scatter_add(1, parents, children)
    whole = torch.zeros_like(ends, dtype=torch.int64).scatter_add_(1, parents, (children * FIXED_POINT).long())
    return ends + whole.to(ends.dtype) / FIXED_POINT
