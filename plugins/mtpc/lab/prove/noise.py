"""Whether a server draws anew: texts that repeat each other, and what a seed does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mtpc.lab.prove.ask import Said
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.dialects import Text
from mtpc.lab.prove.found import Found


def repeated(said: Said, baseline: Client) -> list[Found]:
    """The tests of one request that was sent again and again, and with other seeds."""
    sets = (("without a seed", said.repeated.texts), ("with other seeds", said.seeded.texts[1:]))
    prompt = said.prompts[said.repeated.prompt]
    return [
        Found(test="the same request again", of=of, samples=len(texts), cells=1, p=_chance(texts, prompt, baseline))
        for of, texts in sets
    ]


def _chance(texts: Sequence[Text], prompt: Text, baseline: Client) -> float:
    """At most so probable is it that two of so many texts are the same, and it is as improbable as one that is.

    The chance that any two of m independent texts are the same and each is no more probable than p is no more than
    p m (m - 1) / 2.
    """
    twice = [text for text, count in Counter(texts).items() if count > 1]
    if not twice:
        return 1.0
    start, pairs = len(prompt), len(texts) * (len(texts) - 1) / 2
    all_places = baseline.stated([prompt + text for text in twice], start)
    chances = []
    for text, places in zip(twice, all_places, strict=True):
        chance = 1.0
        for token, stated in zip(text, places, strict=True):
            known = dict(zip(stated.ids, np.exp(stated.logprobs).tolist(), strict=True))
            chance *= known.get(token, max(0.0, 1 - sum(known.values())))
        chances.append(chance)
    return min(1.0, pairs * min(chances))


def keeps_seeds(said: Said) -> bool:
    """Whether a seed's text was the same the second time, alone both times."""
    first, second, *_ = said.seeded.texts
    return first == second
