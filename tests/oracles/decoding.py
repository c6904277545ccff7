"""Reference implementation of speculative decoding of one sequence, without an engine and without `mtpc.verify`.

The acceptance and the outputs of the engines are compared with it, for chains and for trees.  When a decoding step
begins, the target has just emitted a token whose hidden state does not exist yet.  The drafter sees this token, the
tokens before it, and their states.  The target then verifies all draft tokens in one forward pass.  Of a tree, it
reads the whole text up to each prefix that the walk reaches.  That is slow, but needs no attention masks, positions or
cache slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from mtpc.draft import Draft, TreeDraft
from tests.oracles.trees import Prefix, prefixes_of

# tokens int64 [T] -> (hidden [T, d] after the final norm, logits [T, V])
Target = Callable[[Tensor], tuple[Tensor, Tensor]]
# The accepted drafts, the target's own token after them, and the states of the text and the accepted drafts.
Verified = tuple[list[int], int, Tensor]
# (states new to the session [1, n, d], the tokens after them [1, n], the whole text) -> what comes after the text
Step = Callable[[Tensor, Tensor, list[int]], Verified]


class DraftsTokens(Protocol):
    """The part of `mtpc.lab.evaluation.reference.ReferenceDrafter` that decoding needs: it knows nothing yet."""

    def draft(
        self, hidden: Tensor, following: Tensor, num_drafts: int, temperature: Tensor | None, noise: Tensor | None
    ) -> Draft: ...


class DraftsTrees(Protocol):
    """As `DraftsTokens`, for decoding with trees: it knows nothing yet."""

    def draft_tree(
        self, hidden: Tensor, following: Tensor, size: int, temperature: Tensor | None, max_children: int | None
    ) -> TreeDraft: ...


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
    session: DraftsTokens,
    prompt: list[int],
    max_tokens: int,
    num_drafts: int,
    temperature: float,
    seed: int = 0,
) -> Decoded:
    """Draft, verify, repeat.  Temperature 0 is greedy decoding."""
    generator = torch.Generator().manual_seed(seed)

    def step(hidden: Tensor, following: Tensor, text: list[int]) -> Verified:
        drafts, stated = draft_once(session, hidden, following, num_drafts, temperature, generator)
        states, logits = target(torch.tensor(text + drafts))
        judged = [probabilities(row, temperature) for row in logits[len(text) - 1 :]]
        accepted, last = judge(drafts, stated, judged, generator)
        return drafts[:accepted], last, states

    return repeat(target, prompt, max_tokens, temperature, generator, step)


def decode_with_trees(
    target: Target,
    session: DraftsTrees,
    prompt: list[int],
    max_tokens: int,
    size: int,
    temperature: float,
    seed: int = 0,
    max_children: int | None = None,
) -> Decoded:
    """Draft a tree, walk it, repeat.  Temperature 0 is greedy decoding."""
    generator = torch.Generator().manual_seed(seed)

    def step(hidden: Tensor, following: Tensor, text: list[int]) -> Verified:
        draft = session.draft_tree(hidden, following, size, torch.tensor([temperature]), max_children)
        tree = set(prefixes_of(draft.tokens[0].tolist(), draft.parents[0].tolist()))
        path: Prefix = ()
        while True:
            states, logits = target(torch.tensor([*text, *path]))
            token = choose(probabilities(logits[-1], temperature), generator)
            if (*path, token) not in tree:
                return list(path), token, states
            path = (*path, token)

    return repeat(target, prompt, max_tokens, temperature, generator, step)


def repeat(
    target: Target, prompt: list[int], max_tokens: int, temperature: float, generator: torch.Generator, step: Step
) -> Decoded:
    """The target's first token, then step by step until there are tokens enough."""
    text, decoded = list(prompt), Decoded()
    states, logits = target(torch.tensor(text))
    text.append(choose(probabilities(logits[-1], temperature), generator))
    known = 0  # positions that the session has taken up
    while len(text) - len(prompt) < max_tokens:
        new, known = (states[None, known : len(text) - 1], torch.tensor([text[known + 1 :]])), len(text) - 1
        accepted, last, states = step(*new, text)
        text += [*accepted, last]
        decoded.accepted.append(len(accepted))
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


def draft_once(
    session: DraftsTokens,
    hidden: Tensor,
    following: Tensor,
    num_drafts: int,
    temperature: float,
    generator: torch.Generator,
) -> tuple[list[int], Tensor | None]:
    """Drafts and the distribution [K, V] that each was drawn from (None: chosen greedily)."""
    heat, noise = None, None
    if temperature > 0.0:
        heat = torch.tensor([temperature])
        noise = torch.rand(1, num_drafts, generator=generator).double()
    draft = session.draft(hidden, following, num_drafts, heat, noise)
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
