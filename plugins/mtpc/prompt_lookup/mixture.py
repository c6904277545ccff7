"""Drafting from a mixture of copying and a drafter, one token after the other, with exact conditionals.

The joint of a draft is that of a hidden number L of tokens that are copied first,

    q(x_1..x_K) = sum_l P(L = l) prod_{i <= l} 1[x_i = c_i] prod_{i > l} q_d(x_i | x_<i),

where copying that has gone on for i - 1 tokens goes on to the next with chance r_i: P(L >= l) = r_1 ... r_l.  Its
conditionals need one number beside the drafter's own: the weight w_i, the chance that x_i is copied given x_<i.  It is
r_1 at first; once x_i has been seen, it is updated by Bayes' rule (`Copying.drafted`), and is zero as soon as a token
differs from what would have been copied.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self, TypeVar

import torch
from torch import Tensor

DOUBT = -1.0  # of a chance's logit


Chances = TypeVar("Chances", Tensor, float)


def doubted(chances: Chances) -> Chances:
    """What a chance to be copied weighs beside a drafter, or each of several; none stays none.

    What would be copied matters where the drafter would say something else, and there it is right less often than where
    both agree: along SmolLM2's greedy answers 0.10, 0.30 and 0.43 of the time after 1, 2 and 3 tokens that match, where
    it is right 0.23, 0.54 and 0.65 of the time in all.  In logits that is about one less.
    """
    weighed = chances * math.exp(DOUBT)
    return weighed / (1.0 - chances + weighed)


class Copied(NamedTuple):
    """What would be copied after the texts of a batch.

    tokens: int64 [B, m], c_1..c_m.  chances: float32 [B, m], r_1..r_m, below 1; 0 where there is nothing to copy.
    """

    tokens: Tensor
    chances: Tensor

    def first(self, count: int) -> Self:
        """So many tokens."""
        return self._replace(tokens=self.tokens[:, :count], chances=self.chances[:, :count])

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return self._replace(tokens=self.tokens.to(device), chances=self.chances.to(device))


class Copying(NamedTuple):
    """How far a draft has come: copied, of which ``done`` tokens are drafted, and w of the next, float32 [B]."""

    copied: Copied
    done: int
    weight: Tensor

    @classmethod
    def begin(cls, copied: Copied) -> Self:
        """Before the first token."""
        return cls(copied, 0, copied.chances[:, 0].clone())

    @property
    def token(self) -> Tensor:
        """What would be copied next, int64 [B]."""
        return self.copied.tokens[:, self.done]

    @property
    def is_over(self) -> bool:
        """Whether nothing is copied any more in any row; a GPU is waited for."""
        return not bool(self.weight.any())

    def passed(self) -> Self:
        """`drafted`, of any token, where copying `is_over`."""
        return self._replace(done=self.done + 1)

    def of(self, own: Tensor) -> Tensor:
        """The probability of what would be copied next, [B], in the drafter's distribution, [B, V]."""
        return own.gather(1, self.token[:, None])[:, 0]

    def rest(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens and chances of what is still to be drafted, and w of the first of them."""
        return self.copied.tokens[:, self.done :], self.copied.chances[:, self.done :], self.weight

    def of_rows(self, rows: slice) -> Copying:
        """Some rows alone."""
        return Copying(Copied(*(each[rows] for each in self.copied)), self.done, self.weight[rows])

    def remaining(self) -> Copied:
        """What is still to be drafted, for a draft that begins here: w of its first token is the first chance."""
        tokens, chances, weight = self.rest()
        return Copied(tokens, torch.cat([weight[:, None], chances[:, 1:]], 1))

    def mixed(self, own: Tensor) -> Tensor:
        """q(x_i | x_<i), float32 [B, V], of the drafter's own q_d(x_i | x_<i), [B, V]."""
        weight = self.weight[:, None]
        return ((1.0 - weight) * own).scatter_add(1, self.token[:, None], weight.to(own.dtype))

    def most_probable(self, token: Tensor, likely: Tensor, copied: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable token of q(x_i | x_<i), int64 [B], and its probability, float32 [B].

        token: the drafter's own most probable one, and q_d of it and of the token that would be copied, float32 [B].
        """
        by_copying, by_drafter = self.weight + (1.0 - self.weight) * copied, (1.0 - self.weight) * likely
        copies = (token == self.token) | (by_copying > by_drafter)
        return torch.where(copies, self.token, token), torch.where(copies, by_copying, by_drafter)

    def drafted(self, token: Tensor, by_drafter: Tensor) -> Self:
        """After one more token, int64 [B]; by_drafter: q_d of the token that would have been copied, [B]."""
        done = self.done + 1
        if done == self.copied.tokens.shape[1]:
            return self._replace(done=done, weight=torch.zeros_like(self.weight))
        likely = self.weight + (1.0 - self.weight) * by_drafter.to(self.weight.dtype)
        copied = self.weight / likely.clamp_min(torch.finfo(torch.float32).tiny)
        weight = torch.where(token == self.token, copied * self.copied.chances[:, done], 0.0)
        return self._replace(done=done, weight=weight)
