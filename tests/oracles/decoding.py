"""Speculative decoding of one sequence as a plain loop, without an engine and without `mtpc.verify`.

The acceptance and the text of the engines are held against this.  One step, as in the design's first contract:
the target has just emitted a token, whose hidden state does not exist yet; the drafter sees the state that
predicted the token, and the token; the target then judges all drafts in one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from mtpc.drafter import Draft

# tokens int64 [T] -> (hidden [T, d] after the final norm, logits [T, V])
Target = Callable[[Tensor], tuple[Tensor, Tensor]]


class DraftsTokens(Protocol):
    """The part of `mtpc.drafter.Drafter` that decoding needs."""

    @property
    def noise_size(self) -> int: ...

    def draft(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Literal["sampled", "greedy", "mixed"],
    ) -> Draft: ...


@dataclass
class Decoded:
    """The new tokens, and how many drafts each step accepted."""

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def acceptance_length(self) -> float:
        """Tokens per verification step, the target's own counted."""
        return 1.0 + sum(self.accepted) / len(self.accepted)


def decode(target: Target, prompt: list[int], max_tokens: int, temperature: float, seed: int = 0) -> list[int]:
    """The target alone, one token at a time: what every drafter must reproduce."""
    generator, text = torch.Generator().manual_seed(seed), list(prompt)
    for _ in range(max_tokens):
        _, logits = target(torch.tensor(text))
        text.append(choose(probabilities(logits[-1], temperature), generator))
    return text[len(prompt) :]


def decode_speculatively(
    target: Target,
    drafter: DraftsTokens,
    prompt: list[int],
    max_tokens: int,
    num_drafts: int,
    temperature: float,
    seed: int = 0,
) -> Decoded:
    """Draft, verify, repeat.  Temperature 0 is greedy decoding."""
    generator, text, decoded = torch.Generator().manual_seed(seed), list(prompt), Decoded()
    hidden, logits = target(torch.tensor(text))
    state = hidden[-1]  # predicted the token that comes next
    text.append(choose(probabilities(logits[-1], temperature), generator))
    while len(text) - len(prompt) < max_tokens:
        drafts, draft_probabilities = draft_once(drafter, state, text[-1], num_drafts, temperature, generator)
        hidden, logits = target(torch.tensor(text + drafts))
        start = len(text) - 1  # the position whose logits judge the first draft
        accepted, last = judge(
            drafts, draft_probabilities, [probabilities(row, temperature) for row in logits[start:]], generator
        )
        state = hidden[start + accepted]
        text += [*drafts[:accepted], last]
        decoded.accepted.append(accepted)
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


def draft_once(
    drafter: DraftsTokens, state: Tensor, token: int, num_drafts: int, temperature: float, generator: torch.Generator
) -> tuple[list[int], Tensor | None]:
    """Drafts and the distribution [K, V] that each was drawn from (None: chosen greedily)."""
    greedy = temperature == 0.0
    draft = drafter.draft(
        state[None],
        torch.tensor([token]),
        None if greedy else torch.tensor([temperature]),
        None if greedy else torch.rand(1, drafter.noise_size, generator=generator),
        num_drafts,
        "greedy" if greedy else "sampled",
    )
    return draft.tokens[0].tolist(), None if draft.probs is None else draft.probs[0]


def judge(drafts: list[int], draft: Tensor | None, target: list[Tensor], generator: torch.Generator) -> tuple[int, int]:
    """How many drafts are accepted, and the token that follows them (Leviathan et al. 2022, algorithm 1)."""
    for i, token in enumerate(drafts):
        p = target[i]
        q = torch.nn.functional.one_hot(torch.tensor(token), len(p)).double() if draft is None else draft[i].double()
        if not torch.rand((), generator=generator).item() * q[token].item() < p[token].item():
            return i, choose((p - q).clamp_min(0.0), generator)
    return len(drafts), choose(target[len(drafts)], generator)


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """float64 [V]; one-hot at temperature 0."""
    if temperature == 0.0:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).double()
    return (logits.double() / temperature).softmax(-1)


def choose(weights: Tensor, generator: torch.Generator) -> int:
    """A token drawn from unnormalised weights [V]."""
    return int(torch.multinomial(weights, 1, generator=generator).item())
