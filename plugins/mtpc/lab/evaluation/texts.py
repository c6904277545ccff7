"""Texts that the target generated, with its hidden states and logits, for computing acceptance."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.targets.frozen import FrozenTarget, state_below
from mtpc.lab.targets.generation import generate
from mtpc.methods.drafter import Drafter


class GeneratedText(NamedTuple):
    """Prompt with the target's output.

    Attributes:
        tokens: Token ids of prompt and output.
        start: Position of the first output token.
    """

    tokens: list[int]
    start: int


class TextFeatures(NamedTuple):
    """Text with the target's features.

    Attributes:
        tokens: Token ids, int64 [T].
        hidden: Hidden states of the target after its final norm, [T, d].
        logits: Logits of the target, float32 [T, V]. Row t predicts token t + 1.
        start: Position of the first output token.
        below: States that enter a layer of the target, [T, d], by the layer's number, for adapted layers.
    """

    tokens: Tensor
    hidden: Tensor
    logits: Tensor
    start: int
    below: dict[int, Tensor] = MappingProxyType({})  # type: ignore[assignment]  # nothing writes to it

    @torch.inference_mode()
    def read_by(self, drafter: Drafter) -> TextFeatures:
        """Return the text with the states that a drafter's parallel part reads as its hidden states.

        They are those of adapted layers, which draft nothing (`AdaptedLayers`), where the drafter has such layers.
        """
        part = drafter.autoregressive
        if not isinstance(part, AdaptedLayers):
            return self
        below = self.below[part.config.state_below][None]
        positions = torch.arange(below.shape[1], device=below.device)[None]
        return self._replace(hidden=part(None, below, positions)[0])

    def steps(self, num_drafts: int) -> tuple[slice, Tensor]:
        """Return the L' positions t after which a step fits into the output.

        A step after position t reads h_t and x_{t+1}. x_{t+1} must be generated, and K more tokens must follow.

        Args:
            num_drafts: Draft tokens K per step.

        Returns:
            The positions, and int64 [L', K + 1]: x_{t+1} and the tokens that the draft tokens are compared with.
        """
        stop = max(self.start - 1, len(self.tokens) - num_drafts - 1)
        if len(self.tokens) <= num_drafts:
            return slice(0, 0), self.tokens.new_empty(0, num_drafts + 1)
        return slice(self.start - 1, stop), self.tokens.unfold(0, num_drafts + 1, 1)[self.start :]


def generate_texts(
    target: FrozenTarget, prompts: Prompts, length: int, temperature: float, seed: int
) -> dict[str, list[GeneratedText]]:
    """Generate text after each prompt.

    Args:
        target: Frozen target.
        prompts: Prompts by kind.
        length: Longest output per prompt, in tokens.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.

    Returns:
        Texts by kind, in the order of their prompts.
    """
    generator = torch.Generator(target.device).manual_seed(seed)
    texts = {}
    for kind, of_kind in prompts.by_kind.items():
        if of_kind:
            generated = generate(target, of_kind, length, temperature, prompts.end_tokens(target), generator)
            texts[kind] = [GeneratedText(text, len(prompt)) for text, prompt in zip(generated, of_kind, strict=True)]
    return texts


def features_for(target: FrozenTarget, drafter: Drafter, text: GeneratedText) -> TextFeatures:
    """Return a text with the features that a drafter's parallel part reads, see `TextFeatures.read_by`.

    Args:
        target: Frozen target.
        drafter: Drafter on the target's device; adapted layers are bound to the target.
        text: The text.
    """
    below = state_below(drafter)
    return text_features(target, text, () if below is None else (below,)).read_by(drafter)


@torch.inference_mode()
def text_features(target: FrozenTarget, text: GeneratedText, below: Collection[int] = ()) -> TextFeatures:
    """Return a text with the target's features, computed in one pass.

    Args:
        target: Frozen target.
        text: The text.
        below: Layers whose input states are needed, see `TextFeatures`.
    """
    tokens = torch.tensor(text.tokens, device=target.device)
    features = target.features(tokens[None], below)
    states = {number: each[0] for number, each in features.below.items()}
    return TextFeatures(tokens, features.hidden[0], features.logits[0], text.start, states)
