"""A language model that is a table, and speculative decoding of it with faults that can be switched on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Fault = Literal["misstated draft", "wrong temperature", "top-p ignored", "bonus from the wrong row", "frozen noise"]
VOCABULARY = 40
DRAFTS = 3
MISSTATED = 0.1  # share of the stated draft distribution that is uniform over all tokens
WARMER = 1.15  # factor on the temperature of the verified distribution
Rows = np.ndarray


@dataclass(frozen=True)
class Sampling:
    """Of a request."""

    temperature: float
    top_k: int
    top_p: float


@dataclass
class TableModel:
    """The next token's logits are those of the last token and, less so, of the one before; the draft knows the last.

    fault: what is wrong, None where nothing is.  drafts: whether it drafts at all.
    """

    fault: Fault | None = None
    drafts: bool = True
    steps: int = 0
    accepted: np.ndarray = field(default_factory=lambda: np.zeros(DRAFTS))  # drafts accepted at least so far

    def __post_init__(self) -> None:
        tables = np.random.default_rng(1).normal(size=(3, VOCABULARY, VOCABULARY))
        self.last, self.before = 1.8 * tables[0], 0.6 * tables[1]
        self.drafted = self.last + 0.4 * tables[2]

    def logits(self, before: Rows, last: Rows) -> Rows:
        """After each pair of tokens, [B, V]."""
        return np.asarray(self.last[last] + self.before[before])

    def probs(self, before: Rows, last: Rows, sampling: Sampling) -> Rows:
        """What the next token is sampled from, [B, V]."""
        return left_of(self.logits(before, last), sampling)

    def sampled(self, text: list[int], count: int, length: int, sampling: Sampling, noise: np.random.Generator) -> Rows:
        """Continuations of a text, [count, length]."""
        if self.fault == "frozen noise" and sampling.temperature:
            noise = np.random.default_rng(1)
        emitted = np.zeros((count, 2 + length + DRAFTS + 1), dtype=int)  # with the last two tokens of the text
        emitted[:, :2] = text[-2:]
        ends = np.full(count, 3)  # the first token is the target's own
        emitted[:, 2] = draw(self.probs(emitted[:, 0], emitted[:, 1], sampling), noise)
        while (ends < 2 + length).any():
            rows = np.flatnonzero(ends < 2 + length)
            tokens, numbers = self.step(emitted[rows, ends[rows] - 2], emitted[rows, ends[rows] - 1], sampling, noise)
            for row, new, number in zip(rows, tokens, numbers, strict=True):
                emitted[row, ends[row] : ends[row] + number] = new[:number]
            ends[rows] += numbers
        return emitted[:, 2 : 2 + length]

    def step(self, before: Rows, last: Rows, sampling: Sampling, noise: np.random.Generator) -> tuple[Rows, Rows]:
        """Return the emitted tokens of one decoding step, [B, DRAFTS + 1], and how many of them count, [B]."""
        if not self.drafts:
            return draw(self.probs(before, last, sampling), noise)[:, None], np.ones(len(last), dtype=int)
        context, stated = [before, last], []
        for _ in range(DRAFTS):
            q = left_of(self.drafted[context[-1]], Sampling(sampling.temperature, 0, 1.0))
            context.append(draw(q, noise))
            misstated = self.fault == "misstated draft" and sampling.temperature
            stated.append((1 - MISSTATED) * q + MISSTATED / VOCABULARY if misstated else q)
        verified = self.verified(sampling)
        p = [self.probs(context[i], context[i + 1], verified) for i in range(DRAFTS + 1)]
        if self.fault == "bonus from the wrong row":
            p[DRAFTS] = p[DRAFTS - 1]
        rows, tokens, numbers = np.arange(len(last)), [], np.ones(len(last), dtype=int)
        alive = np.ones(len(last), dtype=bool)
        for i in range(DRAFTS):
            token, own, draft_probs = context[i + 2], p[i], stated[i]
            accepted = noise.random(len(last)) * draft_probs[rows, token] < own[rows, token]
            rest = np.maximum(own - draft_probs, 0)
            empty = rest.sum(1) == 0
            rest[empty] = own[empty]
            tokens.append(np.where(accepted, token, draw(rest / rest.sum(1, keepdims=True), noise)))
            alive &= accepted
            self.accepted[i] += alive.sum()
            numbers += alive
        self.steps += len(last)
        return np.stack([*tokens, draw(p[DRAFTS], noise)], 1), numbers

    def verified(self, sampling: Sampling) -> Sampling:
        """How the target's distribution is made for the verification."""
        if self.fault == "wrong temperature":
            return Sampling(sampling.temperature * WARMER, sampling.top_k, sampling.top_p)
        return Sampling(sampling.temperature, sampling.top_k, 1.0 if self.fault == "top-p ignored" else sampling.top_p)


def left_of(logits: Rows, sampling: Sampling) -> Rows:
    """What temperature, top-k and then top-p leave, [B, V]; temperature 0 the first token."""
    if not sampling.temperature:
        return np.eye(logits.shape[1])[logits.argmax(1)]
    ranked = -np.sort(-logits, axis=1)
    kept = np.where(logits < ranked[:, [(sampling.top_k or logits.shape[1]) - 1]], -np.inf, logits)
    weights = np.exp((kept - ranked[:, :1]) / sampling.temperature)
    probs = weights / weights.sum(1, keepdims=True)
    order = np.argsort(-probs, axis=1)
    sums = np.cumsum(np.take_along_axis(probs, order, 1), 1)
    outside = np.concatenate([np.zeros((len(sums), 1), dtype=bool), sums[:, :-1] >= sampling.top_p], 1)
    np.put_along_axis(probs, order, np.where(outside, 0, np.take_along_axis(probs, order, 1)), 1)
    return np.asarray(probs / probs.sum(1, keepdims=True))


def draw(probs: Rows, noise: np.random.Generator) -> Rows:
    """A token of each row, [B]."""
    sums = np.cumsum(probs, 1)
    return np.asarray((sums <= noise.random((len(probs), 1)) * sums[:, -1:]).sum(1))
