"""Texts to score drafters on: held-out prompts that the target continued, with the target's own view of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mtpc.data.corpus import Corpus
from mtpc.targets.frozen import FrozenTarget

CHUNK = 64


@dataclass(frozen=True)
class Continuations:
    """Texts by the target with its own view of them.

    tokens: int64 [S, P + L]; hidden [S, P + L, d]; logits [S, P + L, V]; start: P, the prompt's length.
    """

    tokens: Tensor
    hidden: Tensor
    logits: Tensor
    start: int
    temperature: float

    def steps(self, window: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each text, what a step that starts at each position drafts from, and what its drafts are compared with.

        A step after position t knows h_t and x_{t+1}.  Yields hidden [L', d], h_t, and windows int64 [L', n], x_{t+1}
        to x_{t+n}, for every t from P - 1 on whose window lies within the text: L' = L - n + 1.
        """
        for tokens, hidden in zip(self.tokens, self.hidden, strict=True):
            windows = tokens.unfold(0, window, 1)[self.start :]
            yield hidden[self.start - 1 :][: len(windows)], windows


def heldout_prompts(corpus: Corpus, kind: str, count: int, length: int) -> Tensor:
    """Evenly spaced prompts of the held-out split, int64 [count, length]."""
    tokens = corpus.heldout(kind)
    starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
    return torch.from_numpy(np.stack([tokens[s : s + length] for s in starts]).astype(np.int64))


def write_continuations(target: FrozenTarget, prompts: Tensor, length: int, temperature: float) -> Continuations:
    """Let the target write ``length`` tokens after each prompt and look at them once more in one pass."""
    tokens = target.generate(prompts, length, temperature)
    passes = [target.features(part) for part in tokens.split(CHUNK)]
    return Continuations(
        tokens.cpu(),
        torch.cat([each.hidden.float().cpu() for each in passes]),
        torch.cat([each.logits.cpu() for each in passes]),
        prompts.shape[1],
        temperature,
    )


def concatenate(parts: list[Continuations]) -> Continuations:
    """Several sets of equally long texts as one."""
    return Continuations(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.hidden for part in parts]),
        torch.cat([part.logits for part in parts]),
        parts[0].start,
        parts[0].temperature,
    )
