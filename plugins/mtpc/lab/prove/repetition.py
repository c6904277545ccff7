"""Tests that a server draws new random numbers for each request, and whether a seed repeats its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import TokenIds
from mtpc.lab.prove.recording import Recording
from mtpc.lab.prove.significance import SignificanceTest


def repetition_tests(recording: Recording, baseline: Client) -> list[SignificanceTest]:
    """Return the tests of one request that was repeated, without a seed and with different seeds."""
    sets = (("without a seed", recording.repeated.texts), ("with other seeds", recording.seeded.texts[1:]))
    prompt = recording.prompts[recording.repeated.prompt]
    return [
        SignificanceTest(
            test="repeated requests", of=of, samples=len(texts), cells=1, p=_p_value(texts, prompt, baseline)
        )
        for of, texts in sets
    ]


def _p_value(texts: Sequence[TokenIds], prompt: TokenIds, baseline: Client) -> float:
    """Bound the probability that two of the outputs are equal and as improbable as those that are.

    The probability that any two of m independent outputs are equal, each no more probable than p, is at most
    p m (m - 1) / 2.
    """
    twice = [text for text, count in Counter(texts).items() if count > 1]
    if not twice:
        return 1.0
    start, pairs = len(prompt), len(texts) * (len(texts) - 1) / 2
    logprobs = baseline.top_logprobs([prompt + text for text in twice], start)
    chances = []
    for text, positions in zip(twice, logprobs, strict=True):
        chance = 1.0
        for token, top in zip(text, positions, strict=True):
            known = dict(zip(top.ids, np.exp(top.logprobs).tolist(), strict=True))
            chance *= known.get(token, max(0.0, 1 - sum(known.values())))
        chances.append(chance)
    return min(1.0, pairs * min(chances))


def seeds_repeat(recording: Recording) -> bool:
    """Whether the same seed gave the same output twice, both times at batch size 1."""
    first, second, *_ = recording.seeded.texts
    return first == second
