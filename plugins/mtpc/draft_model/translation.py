"""How the tokens of a draft model become tokens of the target: TLI and SLEM (arXiv:2502.05202, algorithms 4 and 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from mtpc.draft_model.alignment import continuation
from mtpc.draft_model.encoder import ByteEncoder
from mtpc.draw import draw_tokens
from mtpc.errors import MTPCError
from mtpc.vocabulary.special_tokens import same_meaning, special_tokens
from mtpc.vocabulary.token_bytes import intersection


class TokenizerPair(NamedTuple):
    """The tokenizers of a draft model and of its target.

    Attributes:
        own: The draft model's.
        target: The target's.
        special: The draft model's special token for each special token of the target with the same meaning.
        ends: The target's special token for each of these tokens of the draft model.
        beginning: The tokens that the draft model's tokenizer puts before every text: none, or the beginning of text.
        common: int64 [2, N], the ids of all common tokens: the draft model's, and the target's.
    """

    own: ByteEncoder
    target: ByteEncoder
    special: dict[int, int]
    ends: dict[int, int]
    beginning: list[int]
    common: Tensor

    @classmethod
    def of(cls, draft: Any, target: Any) -> Self:
        """Compare two tokenizers of transformers.

        Args:
            draft: The draft model's.
            target: The target's.

        Raises:
            MTPCError: They have no token in common, or one cannot decode single tokens.
        """
        own, targets = ByteEncoder(draft), ByteEncoder(target)
        special = same_meaning(special_tokens(target), special_tokens(draft))
        # Of several tokens with one meaning, a draft writes the one that ends the target's turns.
        last = sorted(special.items(), key=lambda each: each[0] == target.eos_token_id)
        ends = {mine: theirs for theirs, mine in last}
        beginning = [each for each in draft.encode("x")[:1] if each == draft.bos_token_id]
        both = intersection(own.tokens, targets.tokens)
        plain = torch.stack([torch.from_numpy(both.draft), torch.from_numpy(both.target)])
        common = torch.cat([plain, torch.tensor(list(ends.items()), dtype=torch.int64).view(-1, 2).T], 1)
        return cls(own, targets, special, ends, beginning, common)

    def check_sizes(self, draft: int, target: int) -> None:
        """Check that both models have all tokens of their tokenizers.

        Args:
            draft: Number of tokens of the draft model.
            target: Number of tokens of the target.

        Raises:
            MTPCError: Tokens were added to a tokenizer, but not to its model.
        """
        for whose, encoder, size in (("draft model", self.own, draft), ("target", self.target, target)):
            if (tokens := len(encoder.tokens.tokens)) > size:
                raise MTPCError(
                    f"the {whose}'s tokenizer has {tokens:,} tokens, but the model only {size:,}: resize its embedding."
                )

    def unwritable(self, vocab_size: int) -> Tensor:
        """Return the draft model's ids that mean nothing to the target, int64: other special tokens and padding."""
        tokens = self.own.tokens.tokens
        written = {number for number, token in enumerate(tokens) if token} | self.ends.keys()
        return torch.tensor([number for number in range(vocab_size) if number not in written], dtype=torch.int64)


class Translation(ABC):
    """One request's draft while it grows.

    Protocol: `choose` until the draft is long enough, then `translated`.

    Attributes:
        own: The tokens so far, the draft model's ids.
        confidence: Probability that all of them are right, by the draft model.
        ended: Whether the last one ends the text.
    """

    def __init__(self, pair: TokenizerPair) -> None:
        self.pair, self.confidence, self.ended = pair, 1.0, False
        self.own: list[int] = []

    @abstractmethod
    def choose(self, logits: Tensor) -> None:
        """Add the next token.

        Args:
            logits: float32 [V'] of the draft model, -inf for tokens that cannot be translated.
        """

    def _add(self, token: int, confidence: float) -> None:
        """Add a token where the most probable one has this probability."""
        self.own.append(token)
        self.confidence *= confidence
        self.ended = token in self.pair.ends

    def is_full(self, num_drafts: int) -> bool:
        """Return whether it has enough tokens for K draft tokens of the target."""
        return len(self.own) >= num_drafts

    @abstractmethod
    def translated(self, tail: list[int], num_drafts: int) -> tuple[list[int], list[Tensor]]:
        """Return the draft in the target's tokens.

        Args:
            tail: The last tokens of the request's text, the target's ids.
            num_drafts: K, most tokens.

        Returns:
            The tokens, and the distribution of each over the common tokens, float32 [N]; no distributions where the
            draft is deterministic.
        """


class TokenIntersection(Translation):
    """TLI: draws from the draft model's distribution over the common tokens.

    Args:
        pair: The tokenizers.
        temperature: Of the request; 0 is greedy.
        uniforms: float64 [K], in [0, 1), the noise of each token. None where the temperature is 0.
    """

    def __init__(self, pair: TokenizerPair, temperature: float, uniforms: Tensor | None) -> None:
        super().__init__(pair)
        self.temperature, self.uniforms = torch.tensor([temperature]), uniforms
        self.columns: list[int] = []
        self.probs: list[Tensor] = []

    def choose(self, logits: Tensor) -> None:
        """See `Translation.choose`."""
        common = logits[self.pair.common[0]]
        largest, column = common.max(0)
        confidence = (largest - logits.logsumexp(0)).exp()
        if self.uniforms is not None:
            place = len(self.own)
            column, probs = draw_tokens(common[None], self.temperature, self.uniforms[place : place + 1])
            self.probs.append(probs[0])
        self.columns.append(int(column))
        self._add(int(self.pair.common[0, self.columns[-1]]), float(confidence))

    def translated(self, tail: list[int], num_drafts: int) -> tuple[list[int], list[Tensor]]:
        """See `Translation.translated`."""
        return self.pair.common[1, self.columns].tolist(), self.probs


class StringMatch(Translation):
    """SLEM: the most probable text of the draft model, in the target's tokens.

    Proposed tokens have no distribution: a target accepts each with its own probability of it.
    """

    def choose(self, logits: Tensor) -> None:
        """See `Translation.choose`."""
        largest, token = logits.max(0)
        self._add(int(token), float((largest - logits.logsumexp(0)).exp()))

    def translated(self, tail: list[int], num_drafts: int) -> tuple[list[int], list[Tensor]]:
        """See `Translation.translated`."""
        written = self.pair.own.tokens.text_of(self.own)
        tokens = continuation(self.pair.target, tail, written)
        if self.ended:
            tokens.append(self.pair.ends[self.own[-1]])
        return tokens[:num_drafts], []
