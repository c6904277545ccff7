"""The exact distribution of a target's next tokens, and a chi-square test of samples against it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.statistics import chi_square_p_value

LENGTH = 3  # tokens whose joint is compared
EXPECTED = 5.0  # the usual least expected count of a cell


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


Window = tuple[int, ...]


def cells(reference: Reference, prompt: list[int], sampling: Sampling, samples: int) -> dict[Window, float]:
    """Probabilities of disjoint sets of windows that together are all windows.

    A key of `LENGTH` tokens is one window; a shorter one stands for all windows that begin with it and with no
    longer key.  Every cell but the empty key expects at least `EXPECTED` of ``samples``.
    """
    level: dict[Window, float] = {(): 1.0}
    rests: dict[Window, float] = {}
    for _ in range(LENGTH):
        following: dict[Window, float] = {}
        all_probs = reference.next_probs([prompt + list(start) for start in level], sampling)
        for (start, mass), probs in zip(level.items(), all_probs, strict=True):
            joint = mass * probs
            large = (joint * samples >= EXPECTED).nonzero().flatten().tolist()
            following |= {(*start, token): float(joint[token]) for token in large}
            rests[start] = mass - float(joint[large].sum())
        level = following
    for start in sorted(rests, key=len, reverse=True):  # what is too rare to be a cell joins the next shorter key
        if start and rests[start] * samples < EXPECTED:
            rests[start[:-1]] += rests.pop(start)
    return rests | level


def p_value(windows: list[Window], probabilities: dict[Window, float]) -> float:
    """Of the observed windows under the exact probabilities of `cells`."""
    counts: Counter[Window] = Counter()
    for window in windows:
        keys = (window[:length] for length in range(LENGTH, -1, -1))
        counts[next(key for key in keys if key in probabilities)] += 1
    return chi_square_p_value(counts, probabilities)
