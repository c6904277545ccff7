"""A toy target, a fixed Markov chain, and drafters for it: toys, and real ones with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from mtpc.draft import Draft
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.target_head.shared import SharedHead

STATES, START, DRAFTS = 4, 2, 3
CIRCUIT_RUNS = 600  # a real drafter costs about 8 ms a run


def random_chain(states: int, seed: int) -> Tensor:
    """Log transition probabilities, float64 [V, V]."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(states, states, generator=generator, dtype=torch.float64) * 1.2).log_softmax(-1)


@dataclass(frozen=True)
class MarkovTarget:
    """The next token depends on the last one only; the hidden state is the last token, one-hot."""

    chain: Tensor

    def __call__(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens int64 [T] -> (hidden [T, V], logits [T, V])."""
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

    def draft(
        self, hidden: Tensor, following: Tensor, num_drafts: int, temperature: Tensor | None, noise: Tensor | None
    ) -> Draft:
        """As `mtpc.lab.evaluation.reference.ReferenceDrafter.draft`; the hidden states are not needed."""
        tokens, probs, token = [], [], following[:, -1]
        for i in range(num_drafts):
            if noise is None or temperature is None:
                token = self.chain[token].argmax(-1)
            else:
                steps = (self.chain[token] / temperature[:, None]).softmax(-1)  # [B, V]
                probs.append((self.claimed[token] / temperature[:, None]).softmax(-1).float())
                token = (steps.cumsum(-1) <= noise[:, i : i + 1]).sum(-1).clamp(max=len(self.chain) - 1)
            tokens.append(token)
        return Draft(torch.stack(tokens, 1), torch.stack(probs, 1) if probs else None)


TARGET = MarkovTarget(random_chain(STATES, seed=0))


def circuit_drafter(kind: str = "btree", dtype: torch.dtype = torch.float32) -> Drafter:
    """A real drafter with random weights for the toy target."""
    torch.manual_seed(0)
    rank = 1 if kind == "ff" else 3
    config = MTPCConfig(circuit=kind, window=DRAFTS + 1, rank=rank, hidden_size=STATES, vocab_size=STATES)
    drafter = Drafter(MTPC(), config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return drafter.to(dtype).eval()


def session(drafter: Drafter) -> ReferenceDrafter:
    """A new session of a drafter without an autoregressive part, which reads no head of the target."""
    return ReferenceDrafter(drafter, SharedHead(torch.empty(0, 0), torch.empty(0, 0)))
