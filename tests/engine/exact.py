"""The exact distribution of a target's next tokens, and a chi-square test of samples against it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.lab.statistics import windows
from mtpc.lab.statistics.chi_square import chi_square
from mtpc.lab.statistics.windows import Window

LENGTH = 3  # tokens whose joint is compared


class Sampling(NamedTuple):
    """The sampling parameters of a request."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


class Reference:
    """The target in transformers, float32."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def next_probs(self, texts: list[list[int]], sampling: Sampling) -> Tensor:
        """Distributions [B, V] of the token after each of B equally long texts."""
        batches = torch.tensor(texts).split(256)
        logits = torch.cat([self.model(input_ids=batch, use_cache=False).logits[:, -1] for batch in batches])
        logits = logits.double() / sampling.temperature
        if sampling.top_k:
            logits[logits < logits.topk(sampling.top_k, -1).values[:, -1:]] = -torch.inf
        probs = torch.softmax(logits, -1)
        ranked, order = probs.sort(-1, descending=True)
        outside = ranked.cumsum(-1) - ranked >= sampling.top_p  # the tokens before already reach top-p
        probs = probs.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), 0.0)
        return probs / probs.sum(-1, keepdim=True)

    @torch.inference_mode()
    def greedy(self, text: list[int], length: int) -> list[int]:
        """The ``length`` most probable next tokens, one after the other."""
        past, step, found = None, torch.tensor([text]), []
        for _ in range(length):
            out = self.model(input_ids=step, past_key_values=past, use_cache=True)
            past, step = out.past_key_values, out.logits[:, -1:].argmax(-1)
            found.append(int(step))
        return found


def cells(
    reference: Reference, prompt: list[int], sampling: Sampling, samples: int, allowed: Sequence[int] | None = None
) -> dict[Window, float]:
    """Return the cells of the first `LENGTH` tokens after a prompt that this number of samples can tell apart.

    allowed: the tokens that a grammar allows at each position; None: all.
    """

    def following(starts: Sequence[Window]) -> list[dict[int, float]]:
        all_probs = reference.next_probs([prompt + list(start) for start in starts], sampling)
        if allowed is not None:
            all_probs = torch.zeros_like(all_probs).index_copy(1, torch.tensor(allowed), all_probs[:, allowed])
            all_probs = all_probs / all_probs.sum(-1, keepdim=True)
        return [dict(enumerate(probs)) for probs in all_probs.tolist()]

    return windows.cells(following, LENGTH, samples)


def p_value(sampled: list[Window], table: dict[Window, float]) -> float:
    """Of the observed windows under the exact probabilities of `cells`."""
    return chi_square(windows.count_windows(sampled, table), table).p
