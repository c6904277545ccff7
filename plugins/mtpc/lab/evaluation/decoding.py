"""Speculative decoding of one text with any drafter, without an engine: the real loop, for its acceptance."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draw import draw
from mtpc.lab.targets.frozen import Features, FrozenTarget
from mtpc.methods.drafter import Drafter
from mtpc.methods.reference import ReferenceDrafter, truncate_cache
from mtpc.target_head.shared import SharedHead
from mtpc.verify import verify_greedy, verify_rejection


@dataclass
class Decoded:
    """The new tokens, and how many drafts each step of the target accepted.

    peaks: of each step's drafts, where they are drawn, the largest probability that each could have had.
    """

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    peaks: list[list[float]] = field(default_factory=list)


class TargetSession:
    """The target with the keys and values of the text that it has read."""

    def __init__(self, target: FrozenTarget) -> None:
        self.target, self.cache = target, DynamicCache()

    def read(self, tokens: list[int], keep: int) -> Features:
        """The target's view of m tokens after the first ``keep`` of those read before: [1, m, d] and [1, m, V]."""
        truncate_cache(self.cache, keep)
        ids = torch.tensor([tokens], device=self.target.device)
        model = self.target.model
        hidden = model.model(input_ids=ids, past_key_values=self.cache, use_cache=True).last_hidden_state
        return Features(hidden, model.lm_head(hidden).float())


@torch.inference_mode()
def speculate(
    target: FrozenTarget,
    drafter: Drafter,
    head: SharedHead,
    prompt: list[int],
    max_tokens: int,
    num_drafts: int,
    *,
    ends: Collection[int] = (),
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Decoded:
    """Continue a prompt of at least two tokens, up to one of ``ends`` or so many tokens; temperature 0 is greedy."""
    decoded, reader, session = Decoded(), TargetSession(target), ReferenceDrafter(drafter, head)

    def uniforms(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(target.device)

    dtype = next(drafter.parameters()).dtype
    hidden, logits = reader.read(prompt, 0)
    first = logits[:, -1]
    text = [*prompt, int(first.argmax() if temperature == 0 else draw(probabilities(first, temperature), uniforms(1)))]
    known = 0  # positions that the session has taken up; ``hidden`` is of those after them
    while len(text) - len(prompt) < max_tokens and text[-1] not in ends:
        following = torch.tensor([text[known + 1 :]], device=target.device)
        noise = None if temperature == 0 else uniforms(1, num_drafts)
        heat = None if temperature == 0 else torch.full((1,), temperature, device=target.device)
        draft = session.draft(hidden.to(dtype), following, num_drafts, heat, noise)
        known = len(text) - 1
        hidden, logits = reader.read([text[-1], *draft.tokens[0].tolist()], known)
        if draft.probs is None:
            verdict = verify_greedy(draft.tokens, logits)
        else:
            p = probabilities(logits, temperature)
            decoded.peaks.append(draft.probs[0].amax(1).tolist())
            verdict = verify_rejection(draft.tokens, draft.probs, p, uniforms(1, num_drafts), uniforms(1))
        accepted = int(verdict.accepted[0])
        hidden = hidden[:, : accepted + 1]
        new = verdict.tokens[0, : accepted + 1].tolist()
        text += until(new, ends)
        decoded.accepted.append(accepted)
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


def until(tokens: list[int], ends: Collection[int]) -> list[int]:
    """The tokens up to the first that ends the text, with it."""
    last = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: last + 1]


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """The target's distribution: float32 [..., V]."""
    return torch.softmax(logits / temperature, -1)
