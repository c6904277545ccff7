"""A toy target, a fixed Markov chain, and toy drafters for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from mtpc.drafter import Draft


def random_chain(states: int, seed: int) -> Tensor:
    """Log transition probabilities, float64 [V, V]."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(states, states, generator=generator, dtype=torch.float64) * 1.2).log_softmax(-1)


@dataclass(frozen=True)
class MarkovTarget:
    """The next token depends on the last one only; the hidden state is the last token, one-hot."""

    chain: Tensor

    def __call__(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens int64 [T] -> (hidden [T, V], logits [T, V])."""
        return torch.nn.functional.one_hot(tokens, len(self.chain)).float(), self.chain[tokens]

    def joint(self, start: int, length: int, temperature: float) -> dict[tuple[int, ...], float]:
        """The exact probability of every continuation of `start`."""
        steps = (self.chain / temperature).softmax(-1)
        joint = {}
        for x in product(range(len(self.chain)), repeat=length):
            path = (start, *x)
            joint[x] = float(torch.stack([steps[a, b] for a, b in zip(path, x, strict=False)]).prod())
        return joint


@dataclass(frozen=True)
class MarkovDrafter:
    """Drafts from `chain`, and claims to have drafted from `claimed`."""

    chain: Tensor
    claimed: Tensor
    noise_size: int = 8

    def draft(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: str,
    ) -> Draft:
        """As `mtpc.drafter.Drafter.draft`; the hidden state is not needed."""
        tokens, probs = [], []
        for i in range(num_drafts):
            if noise is None or temperature is None:
                token = self.chain[token].argmax(-1)
            else:
                steps = (self.chain[token] / temperature[:, None]).softmax(-1)  # [B, V]
                probs.append((self.claimed[token] / temperature[:, None]).softmax(-1).float())
                token = (steps.cumsum(-1) <= noise[:, i : i + 1]).sum(-1).clamp(max=len(self.chain) - 1)
            tokens.append(token)
        return Draft(torch.stack(tokens, 1), torch.stack(probs, 1) if probs else None)
