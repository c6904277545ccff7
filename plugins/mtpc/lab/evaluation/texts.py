"""Texts that the target wrote, with its own view of them: what the acceptance of a drafter is computed along."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.generation import generate


class GeneratedText(NamedTuple):
    """A prompt and what the target wrote after it, its tokens from ``start`` on."""

    tokens: list[int]
    start: int


class TextFeatures(NamedTuple):
    """A text with the target's view of it.

    tokens: int64 [T].  hidden: [T, d], after the final norm.  logits: float32 [T, V], row t predicts token t + 1.
    start: the first token that the target wrote.
    """

    tokens: Tensor
    hidden: Tensor
    logits: Tensor
    start: int

    def steps(self, num_drafts: int) -> tuple[slice, Tensor]:
        """The positions t whose next token the target wrote and whose K drafts lie in the text: L' of them.

        A step after position t knows h_t and x_{t+1}.  Returned with them: int64 [L', K + 1], x_{t+1} and the tokens
        that its drafts are compared with.
        """
        stop = max(self.start - 1, len(self.tokens) - num_drafts - 1)
        if len(self.tokens) <= num_drafts:
            return slice(0, 0), self.tokens.new_empty(0, num_drafts + 1)
        return slice(self.start - 1, stop), self.tokens.unfold(0, num_drafts + 1, 1)[self.start :]


def generate_texts(
    target: FrozenTarget, prompts: Prompts, length: int, temperature: float, seed: int
) -> dict[str, list[GeneratedText]]:
    """Up to ``length`` tokens of the target after each prompt, by kind; temperature 0 is greedy."""
    generator = torch.Generator(target.device).manual_seed(seed)
    texts = {}
    for kind, asked in prompts.by_kind.items():
        if asked:
            written = generate(target, asked, length, temperature, prompts.end_tokens(target), generator)
            texts[kind] = [GeneratedText(text, len(prompt)) for text, prompt in zip(written, asked, strict=True)]
    return texts


@torch.inference_mode()
def text_features(target: FrozenTarget, text: GeneratedText) -> TextFeatures:
    """The target's view of a text, in one pass."""
    tokens = torch.tensor(text.tokens, device=target.device)
    features = target.features(tokens[None])
    return TextFeatures(tokens, features.hidden[0], features.logits[0], text.start)
