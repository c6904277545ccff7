"""A target's vocabulary as a trie over bytes, on which a drafter over bytes drafts whole tokens of the target.

String-level rejection sampling (SLRS, algorithm 3 of arXiv:2502.05202) needs psi(t), the probability that the drafter
writes the target's token t. For a drafter with a vocabulary of subwords it is a sum over all decompositions of t, and
their number grows exponentially with the length of t (lemma 3.1). A drafter over bytes has one decomposition of each
token, but a text of bytes does not mark where a token ends. Here each node of the trie has a probability of that::

    q(t) = prod_i  p_draft(byte_i | bytes before, among the node's children) (1 - stop(node before)) * stop(node of t)

A token ends where the drafter's next byte is none of the node's children. Where it is one, the token may end all the
same: that has a probability of the node, counted in texts. So q is a distribution over tokens by construction, and it
is known for any token at the cost of the token's bytes. The rule that uses it (`mtpc.verify.strings`) is exact whatever
the drafter and the counts are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mtpc.errors import MTPCError
from mtpc.vocabulary.token_bytes import TokenBytes

# From the bytes of the token so far to the probabilities of the next byte, [256]. They need not sum to 1. None where
# the drafter does not know.
NextByteProbs = Callable[[bytes], np.ndarray | None]


class Branch(NamedTuple):
    """A branch of a node that was chosen.

    Attributes:
        place: 0: the token ends here. Else 1 + the index of a child.
        probability: Its probability.
        uniform: The rest of the uniform that chose it, again in [0, 1); None where there was none.
    """

    place: int
    probability: float
    uniform: float | None


def choose_branch(branches: np.ndarray, uniform: float | None) -> Branch:
    """Draw a branch by inversion, or take the most probable one.

    Args:
        branches: float64 [n], see `TokenTrie.branches`.
        uniform: In [0, 1). What is left of it after the draw is uniform again, so one number draws a whole token.
            None takes the most probable branch.

    Returns:
        The branch, whose probability is positive.
    """
    if uniform is None:
        index = int(branches.argmax())
        return Branch(index, float(branches[index]), None)
    ends = branches.cumsum()
    aim = uniform * ends[-1]
    index = min(int(np.searchsorted(ends, aim, side="right")), int(np.flatnonzero(branches)[-1]))
    rest = (aim - (ends[index] - branches[index])) / branches[index]
    return Branch(index, float(branches[index]), float(min(max(rest, 0.0), 1.0 - 2.0**-53)))


@dataclass(frozen=True, eq=False)
class TokenTrie:
    """A vocabulary as a trie: N nodes by depth, those of a depth in the order of their bytes, node 0 the root.

    The distribution at a node is over its branches: the token ends here, or one of the children follows. The drafter's
    bytes are renormalized over the children. Where it gives none of them any probability, or does not know, the
    children share by their weights. The token ends where the drafter's next byte is none of the children's, and else
    with the node's pause probability. Where the drafter does not know, it ends with the node's stop probability.

    Attributes:
        parent: int64 [N], -1 for the root.
        byte: int64 [N], the last byte of the node's text, -1 for the root.
        token: int64 [N], the token with the node's text, -1 where there is none.
        children: int64 [N + 1]; those of node i are children[i] to children[i + 1] - 1.
        levels: int64 [H + 2], the first node of each depth 0..H, and N. H is the longest token's length.
        weight: float64 [N], smoothed number of a text's tokens that pass through the node.
        stop: float64 [N], the share of them that end there: 1 at a leaf, 0 at a node without a token.
        pause: float64 [N], the same share, but of those that are followed by the byte of a child.
        node_of: int64 [V], the node of each token, -1 for one that is never drafted.
    """

    parent: np.ndarray
    byte: np.ndarray
    token: np.ndarray
    children: np.ndarray
    levels: np.ndarray
    weight: np.ndarray
    stop: np.ndarray
    pause: np.ndarray
    node_of: np.ndarray

    def branches(self, node: int, probs: np.ndarray | None) -> np.ndarray:
        """Return the distribution at a node.

        Args:
            node: The node.
            probs: See `NextByteProbs`.

        Returns:
            float64 [1 + children], the probability that the token ends here, then that of each child.
        """
        nodes = slice(self.children[node], self.children[node + 1])
        shares, stop = self.weight[nodes], self.stop[node]
        if probs is not None:
            drafted = np.asarray(probs, dtype=np.float64)[self.byte[nodes]]
            mass = drafted.sum()
            if self.token[node] >= 0 and (total := probs.sum()) > 0:
                stop = 1.0 - min(mass / total, 1.0) * (1.0 - self.pause[node])
            if mass > 0:
                shares = drafted
        return np.concatenate([[stop], (1.0 - stop) * shares / shares.sum()]) if len(shares) else np.ones(1)

    def forks(self, node: int) -> bool:
        """Whether a node has more than one branch, so that the drafter's probabilities matter there."""
        return bool(self.children[node + 1] - self.children[node] + (self.token[node] >= 0) > 1)

    def path(self, token: int) -> list[int]:
        """Return the nodes from the root to a token; none for a token that is never drafted."""
        node, nodes = int(self.node_of[token]), []
        while node >= 0:
            nodes.append(node)
            node = int(self.parent[node])
        return nodes[::-1]

    def log_prob(self, token: int, next_byte_probs: NextByteProbs) -> float:
        """Return log q of any token, in one pass over its bytes.

        Args:
            token: The token.
            next_byte_probs: The drafter; called only at nodes that fork.

        Returns:
            log q, -inf for a token that is never drafted.
        """
        nodes, q = self.path(token), []
        text = bytes(self.byte[nodes[1:]].tolist())
        for depth, node in enumerate(nodes):
            branches = self.branches(node, next_byte_probs(text[:depth]) if self.forks(node) else None)
            q.append(branches[1 + nodes[depth + 1] - self.children[node] if depth < len(text) else 0])
        return sum(map(math.log, q)) if q and all(q) else -math.inf


def token_trie(
    tokens: TokenBytes,
    counts: np.ndarray | None = None,
    vocab_size: int | None = None,
    pauses: np.ndarray | None = None,
) -> TokenTrie:
    """Build the trie of a vocabulary.

    Special tokens, and all but one of the tokens with the same bytes, are left out: their q is 0. One is added to each
    count, as in a unigram model with smoothing, so every other token can be drafted.

    Args:
        tokens: The target's tokens.
        counts: How often each token occurs in texts, int [V]. None: all alike.
        vocab_size: V of the target's logits, at least the number of tokens. None: equal to it.
        pauses: How often each token occurs before the byte of a child, see `count_pauses`, int [V]. None: never.

    Returns:
        The trie.

    Raises:
        MTPCError: The sizes disagree, or no token has bytes.
    """
    size = len(tokens.tokens) if vocab_size is None else vocab_size
    if size < len(tokens.tokens):
        raise MTPCError(f"vocab_size is {size}, but the target's tokenizer has {len(tokens.tokens)} tokens.")
    for each in (counts, pauses):
        if each is not None and len(each) != size:
            raise MTPCError(f"counts must hold one number for each of the target's {size} tokens, not {len(each)}.")
    texts = tokens.by_bytes()
    if not texts:
        raise MTPCError("the target's tokenizer has no token with bytes, so no drafter over bytes can draft for it.")
    prefixes = sorted(
        {text[:end] for text in texts for end in range(len(text) + 1)}, key=lambda each: (len(each), each)
    )
    node_at = {prefix: node for node, prefix in enumerate(prefixes)}
    parent = np.array([-1, *(node_at[prefix[:-1]] for prefix in prefixes[1:])])
    depth = np.array([len(prefix) for prefix in prefixes])
    levels = np.searchsorted(depth, np.arange(depth[-1] + 2))
    token = np.array([texts.get(prefix, -1) for prefix in prefixes])
    node_of = np.full(size, -1)
    node_of[token[token >= 0]] = np.flatnonzero(token >= 0)
    ended, paused = (
        np.where(token >= 0, (np.zeros(size) if each is None else each)[token] + 1.0, 0.0) for each in (counts, pauses)
    )
    weight = ended.copy()
    for first, last in zip(levels[-2:0:-1], levels[:1:-1], strict=True):  # from the longest tokens up
        weight += np.bincount(parent[first:last], weight[first:last], minlength=len(weight))
    children = np.searchsorted(parent, np.arange(len(prefixes) + 1))
    childless = children[1:] == children[:-1]
    return TokenTrie(
        parent=parent,
        byte=np.array([-1, *(prefix[-1] for prefix in prefixes[1:])]),
        token=token,
        children=children,
        levels=levels,
        weight=weight,
        stop=np.where(childless, 1.0, ended / weight),
        pause=np.where(childless, 1.0, paused / (paused + weight - ended)),
        node_of=node_of,
    )


def count_pauses(trie: TokenTrie, ids: Sequence[int]) -> np.ndarray:
    """Count how often each token of a text ends although the next byte leads on to a longer token.

    Args:
        trie: The target's vocabulary.
        ids: Tokens of texts, one after the other.

    Returns:
        int64 [V].
    """
    nodes = trie.node_of[np.asarray(ids, dtype=np.int64)]
    begins = trie.byte.copy()  # the first byte of each node's text
    for first, last in zip(trie.levels[2:-1], trie.levels[3:], strict=True):
        begins[first:last] = begins[trie.parent[first:last]]
    before, after = nodes[:-1], nodes[1:]
    leads_on = np.isin(256 * before + begins[after], 256 * trie.parent[1:] + trie.byte[1:])
    return np.bincount(trie.token[before[leads_on & (before >= 0) & (after >= 0)]], minlength=len(trie.node_of))


def decompositions(token: bytes, draft: Collection[bytes]) -> int:
    """Count the sequences of draft tokens whose concatenation is a token (lemma 3.1 of arXiv:2502.05202).

    These are the terms of psi(t) in theorem 3.2. In a vocabulary with all strings up to the token's length n there are
    2^(n - 1). Counting takes O(n^2), listing them grows with their number.

    Args:
        token: Bytes of the token.
        draft: Bytes of the draft vocabulary; a set.

    Returns:
        Their number; 0 where the drafter cannot write the token.
    """
    ways = [1]
    for end in range(1, len(token) + 1):
        ways.append(sum(ways[start] for start in range(end) if token[start:end] in draft))
    return ways[-1]


def check_one_decomposition(draft: TokenBytes, target: TokenBytes) -> None:
    """Check that string-level rejection sampling fits a drafter: no token of the target has several decompositions.

    Args:
        draft: Tokens of the drafter's tokenizer.
        target: Tokens of the target's tokenizer.

    Raises:
        MTPCError: A token has more than one, or the drafter cannot write one.
    """
    of_draft = draft.by_bytes().keys()
    counts = {text: decompositions(text, of_draft) for text in target.by_bytes()}
    ranked = sorted(counts, key=lambda text: (counts[text], text))
    if ranked and counts[ranked[-1]] > 1:
        several = [text for text in ranked if counts[text] > 1]
        example = several[len(several) // 2]
        raise MTPCError(
            f"method slrs requires a drafter over bytes, but the drafter has {len(of_draft):,} tokens and the target's "
            f"token {_shown(example)} has {counts[example]:,} decompositions into them, others up to "
            f"{counts[ranked[-1]]:,}; use the method tli or slem."
        )
    if ranked and counts[ranked[0]] < 1:
        raise MTPCError(
            "method slrs requires a drafter that can write every byte, but the target's token "
            f"{_shown(ranked[0])} has no decomposition into its tokens; use the method tli."
        )


def _shown(text: bytes) -> str:
    return repr(text.decode(errors="backslashreplace"))
