"""How the bytes of a draft model become tokens of the target: SLRS (arXiv:2502.05202, algorithm 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.draft_model.language_model import LanguageModel
from mtpc.draft_model.translation import TokenizerPair, Translation
from mtpc.vocabulary.token_trie import TokenTrie, check_one_decomposition, choose_branch

SEEN = 16  # bytes of a token that the draft model's probabilities decide; a longer one ends a draft


class SpelledVocabulary:
    """The target's vocabulary in the tokens of a draft model over bytes.

    Attributes:
        trie: The target's vocabulary.
        ids: The draft model's token of each byte; -1 where no token of the target has this byte.

    Args:
        pair: The tokenizers.
        trie: Of the target.

    Raises:
        MTPCError: The draft model has larger tokens, see `check_one_decomposition`.
    """

    def __init__(self, pair: TokenizerPair, trie: TokenTrie) -> None:
        check_one_decomposition(pair.own.tokens, pair.target.tokens)
        known = pair.own.tokens.by_bytes()
        self.trie, self.ids = trie, [known.get(bytes([byte]), -1) for byte in range(256)]
        self._bytes = [byte for byte in range(256) if self.ids[byte] >= 0]
        self._columns = torch.tensor([self.ids[byte] for byte in self._bytes])

    def byte_probs(self, logits: Tensor, temperature: float) -> np.ndarray:
        """Return the draft model's probabilities of the next byte, float64 [256].

        Args:
            logits: float32 [V'] of the draft model, on the host.
            temperature: Of the request; 0 counts as 1.
        """
        probs = np.zeros(256)
        probs[self._bytes] = (logits[self._columns].double() / (temperature or 1.0)).softmax(0).numpy()
        return probs


class ByteWalk(Translation):
    """Walks from the root of the target's vocabulary to a token, again and again.

    `choose` adds bytes up to the next node where the draft model has a choice, or to the end of a token.

    Attributes:
        tokens: The target's tokens so far.
        stated: q of each; 1 where the draft is deterministic.
        starts: Number of bytes before each.
        roots: The draft model's probabilities of the first byte of each, see `SpelledVocabulary.byte_probs`.

    Args:
        pair: The tokenizers.
        spelled: The target's vocabulary.
        temperature: Of the request; 0 counts as 1.
        uniforms: float64 [K], in [0, 1), the noise of each token. None takes the most probable branches, so that
            the draft is deterministic.
    """

    def __init__(
        self, pair: TokenizerPair, spelled: SpelledVocabulary, temperature: float, uniforms: Tensor | None
    ) -> None:
        super().__init__(pair)
        self.spelled, self.temperature = spelled, temperature
        self.uniforms = None if uniforms is None else uniforms.tolist()
        self.tokens: list[int] = []
        self.stated: list[float] = []
        self.starts: list[int] = []
        self.roots: list[np.ndarray] = []
        self._begin()

    def _begin(self) -> None:
        """Go back to the root."""
        self._node, self._depth, self._q, self._confidence = 0, 0, 1.0, 1.0

    def choose(self, logits: Tensor) -> None:
        """See `Translation.choose`."""
        trie = self.spelled.trie
        known = self.spelled.byte_probs(logits, self.temperature)
        if not self._node:
            self.starts.append(len(self.own))
            self.roots.append(known)
            self._uniform = None if self.uniforms is None else self.uniforms[len(self.tokens)]
        probs: np.ndarray | None = known
        while True:
            branches = trie.branches(self._node, probs)
            branch = choose_branch(branches, self._uniform)
            self._q, self._uniform = self._q * branch.probability, branch.uniform
            self._confidence *= float(branches.max())
            if not branch.place:
                break
            self._node = int(trie.children[self._node]) + branch.place - 1
            self._depth += 1
            self.own.append(self.spelled.ids[trie.byte[self._node]])
            if self._depth < SEEN and trie.forks(self._node):
                return
            probs = None
        self.tokens.append(int(trie.token[self._node]))
        self.stated.append(1.0 if self.uniforms is None else self._q)
        self.confidence *= self._confidence
        self.ended = self._depth > SEEN
        self._begin()

    def is_full(self, num_drafts: int) -> bool:
        """See `Translation.is_full`."""
        return not self._node and len(self.tokens) >= num_drafts

    def translated(self, tail: list[int], num_drafts: int) -> tuple[list[int], list[Tensor]]:
        """See `Translation.translated`."""
        return self.tokens, []


class WalkedDraft(NamedTuple):
    """The draft of a request, and where the draft model has read it.

    Attributes:
        walk: The draft.
        slot: Slot of the request.
        start: Position in the slot of the draft's first byte.
        cached: Tokens in the slot, which are changed with it.
    """

    walk: ByteWalk
    slot: int
    start: int
    cached: list[int]

    def is_certain(self, position: int) -> bool:
        """Return whether a position has one possible token."""
        return self.walk.uniforms is None or position >= len(self.walk.tokens)

    def bytes_of(self, token: int) -> list[int]:
        """Return a token's bytes before the last node where the draft model has a choice, as its tokens."""
        trie = self.walk.spelled.trie
        path = trie.path(token)
        last = max((depth for depth, node in enumerate(path[:SEEN]) if trie.forks(node)), default=0)
        return [self.walk.spelled.ids[trie.byte[node]] for node in path[1 : last + 1]]

    def q(self, position: int, token: int, logits: Sequence[Tensor]) -> float:
        """Return the probability of a token, given the logits after each of its `bytes_of`."""
        walk = self.walk
        if self.is_certain(position):
            return float(token == (walk.tokens[position] if position < len(walk.tokens) else 0))
        after = [walk.roots[position], *(walk.spelled.byte_probs(each, walk.temperature) for each in logits)]
        trie = walk.spelled.trie
        return math.exp(trie.log_prob(token, lambda text: after[len(text)] if len(text) < SEEN else None))


class WalkedProbs:
    """q of any token at each position of a batch's drafts, by one pass of the draft model over the token's bytes.

    It implements `mtpc.draft_model.part.LazyProbs`. The draft model should be float32: q of a token that was not drawn
    must be what the walk would have computed, whatever else was in the batch.

    Args:
        model: The draft model, which has read the drafts.
        drafts: B drafts; None for a request without one.
    """

    def __init__(self, model: LanguageModel, drafts: Sequence[WalkedDraft | None]) -> None:
        self._model, self._drafts = model, drafts
        stated = [[] if draft is None else draft.walk.stated for draft in drafts]
        width = max(map(len, stated))
        filled = [q + [1.0] * (width - len(q)) for q in stated]
        self.stated = torch.tensor(filled, dtype=torch.float64).view(len(drafts), width)

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """Return q(token) for M requests; see `DraftProbs.of`."""
        asked = list(zip(rows.tolist(), positions.tolist(), tokens.tolist(), strict=True))
        reads = {}
        for row, position, token in asked:
            draft = self._drafts[row]
            if draft is not None and not draft.is_certain(position) and (ids := draft.bytes_of(token)):
                start = draft.start + draft.walk.starts[position]
                reads[row] = draft.slot, ids, start
                draft.cached[start:] = ids
        logits: dict[int, Tensor] = {}
        if reads:
            every = self._model.read(*map(list, zip(*reads.values(), strict=True)), every=True).cpu()
            logits = dict(zip(reads, every.split([len(ids) for _, ids, _ in reads.values()]), strict=True))
        found = []
        for row, position, token in asked:
            draft = self._drafts[row]
            found.append(float(not token) if draft is None else draft.q(position, token, list(logits.get(row, ()))))
        return torch.tensor(found, dtype=torch.float64)
