"""Speculative decoding of one text with any drafter, without an engine, to measure acceptance."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draft_model.part import TextPart
from mtpc.draw import draw
from mtpc.lab.evaluation.reference import ReferenceDrafter, truncate_cache
from mtpc.lab.targets.frozen import Features, FrozenTarget, state_below
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead
from mtpc.verify import verify_greedy, verify_rejection, verify_strings


@dataclass
class DecodedText:
    """Generated tokens and the acceptance of each decoding step.

    Attributes:
        tokens: Generated tokens.
        accepted: Accepted draft tokens of each step.
    """

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


class TargetSession:
    """Target with cached keys and values of one text.

    Each ``read`` continues the text of the previous one, of which it keeps the first ``keep`` tokens.

    Args:
        target: Frozen target.
        below: Layer whose input states are the hidden states that are read; None: the last ones.
    """

    def __init__(self, target: FrozenTarget, below: int | None = None) -> None:
        self.target, self.below, self.cache = target, below, DynamicCache()

    def read(self, tokens: list[int], keep: int) -> Features:
        """Return the target's features of m tokens after the first ``keep`` cached ones: [1, m, d] and [1, m, V]."""
        truncate_cache(self.cache, keep)
        below = () if self.below is None else (self.below,)
        features = self.target.features(torch.tensor([tokens]), below, self.cache)
        return features if self.below is None else features._replace(hidden=features.below[self.below])


@torch.inference_mode()
def speculate(
    target: FrozenTarget,
    drafter: Drafter,
    head: SharedHead,
    prompt: list[int],
    max_tokens: int,
    num_drafts: int,
    *,
    end_tokens: Collection[int] = (),
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> DecodedText:
    """Continue a prompt by speculative decoding.

    Args:
        target: Frozen target.
        drafter: Drafter on the target's device; adapted layers are bound to the target.
        head: Output head of the target.
        prompt: Token ids, at least two.
        max_tokens: Longest output, in tokens.
        num_drafts: Draft tokens K per step.
        end_tokens: Tokens that end the output.
        temperature: Temperature of target and drafter; 0 is greedy.
        generator: Source of random numbers. None uses torch's default one.

    Returns:
        The output with the acceptance of each step.
    """
    decoded, session = DecodedText(), ReferenceDrafter(drafter, head)
    target_session = TargetSession(target, state_below(drafter))

    def uniforms(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(target.device)

    dtype = next(drafter.parameters()).dtype
    hidden, logits, _ = target_session.read(prompt, 0)
    first = logits[:, -1]
    text = [*prompt, int(first.argmax() if temperature == 0 else draw(probabilities(first, temperature), uniforms(1)))]
    processed = 0  # positions that the session has read; ``hidden`` belongs to those after them
    while len(text) - len(prompt) < max_tokens and text[-1] not in end_tokens:
        following = torch.tensor([text[processed + 1 :]], device=target.device)
        noise = None if temperature == 0 else uniforms(1, num_drafts)
        temperatures = None if temperature == 0 else torch.full((1,), temperature, device=target.device)
        draft = session.draft(hidden.to(dtype), following, num_drafts, temperatures, noise)
        processed = len(text) - 1
        hidden, logits, _ = target_session.read([text[-1], *draft.tokens[0].tolist()], processed)
        if draft.probs is None:
            verified = verify_greedy(draft.tokens, logits)
        else:
            p = probabilities(logits, temperature)
            verified = verify_rejection(draft.tokens, draft.probs, p, uniforms(1, num_drafts), uniforms(1))
        accepted = int(verified.accepted[0])
        hidden = hidden[:, : accepted + 1]
        new = verified.tokens[0, : accepted + 1].tolist()
        text += cut_after_end(new, end_tokens)
        decoded.accepted.append(accepted)
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


@torch.inference_mode()
def speculate_text(
    target: FrozenTarget,
    part: TextPart,
    prompt: list[int],
    max_tokens: int,
    num_drafts: int,
    *,
    end_tokens: Collection[int] = (),
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> DecodedText:
    """Continue a prompt by speculative decoding with a drafter that reads text; see `speculate`.

    Verification runs on the CPU, where the draft probabilities are.

    Args:
        target: Frozen target.
        part: Text part of the drafter, which may verify lazily; the request is forgotten at the end.
        prompt: Token ids.
        max_tokens: Longest output, in tokens.
        num_drafts: Most draft tokens K per step.
        end_tokens: Tokens that end the output.
        temperature: Temperature of target and drafter; 0 is greedy.
        generator: Source of random numbers. None uses torch's default one.

    Returns:
        The output with the acceptance of each step.
    """
    decoded, session, key = DecodedText(), TargetSession(target), object()

    def uniforms(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def sample(logits: Tensor) -> int:
        return int(logits.argmax() if temperature == 0 else draw(probabilities(logits, temperature), uniforms(1)))

    text = list(prompt)
    new = [sample(session.read(prompt, 0).logits[:, -1].cpu())]
    while True:
        text += cut_after_end(new, end_tokens)
        if len(text) - len(prompt) >= max_tokens or text[-1] in end_tokens:
            break
        part.add(key, text.copy, new)
        noise = None if temperature == 0 else uniforms(1, num_drafts)
        draft = part.draft([key], [temperature], [num_drafts], noise)
        logits = session.read([text[-1], *draft.tokens[0]], len(text) - 1).logits.cpu()
        tokens = torch.tensor(draft.tokens).long().view(1, -1)
        if draft.lazy is not None:
            p = probabilities(logits, temperature)
            last = uniforms(1, p.shape[-1])
            verified = verify_strings(tokens, draft.lazy.stated, draft.lazy, p, uniforms(*tokens.shape), last)
        elif draft.probs is not None:
            p = probabilities(logits, temperature)
            verified = verify_rejection(tokens, draft.probs, p, uniforms(*tokens.shape), uniforms(1))
        else:
            verified = verify_greedy(tokens, logits)
        decoded.accepted.append(int(verified.accepted[0]))
        new = verified.tokens[0, : decoded.accepted[-1] + 1].tolist()
    part.forget([key])
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


def cut_after_end(tokens: list[int], end_tokens: Collection[int]) -> list[int]:
    """Return the tokens up to and including the first end token."""
    last = next((i for i, token in enumerate(tokens) if token in end_tokens), len(tokens))
    return tokens[: last + 1]


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return the distribution at a temperature above 0: logits [..., V] -> float32 [..., V]."""
    return torch.softmax(logits / temperature, -1)
