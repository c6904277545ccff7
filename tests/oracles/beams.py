"""Trees of both parts of a drafter in plain Python: levels of the autoregressive part, then the windows."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracles.trees import Prefix

Law = Callable[[Prefix], list[float]]  # the distribution of the token after a prefix


def beam_tree(
    law: Law, steps: int, depth: int, beams: int, size: int, offered: int | None = None
) -> dict[Prefix, float]:
    """The most probable of the prefixes that are found with their probabilities, parents first.

    steps: levels of the autoregressive part, each after the ``beams`` likeliest prefixes of the one before, with
    as many children each.  In the windows behind them a node has as many children, too, or fewer: ``offered``.
    """
    scores: dict[Prefix, float] = {(): 1.0}
    level: list[Prefix] = [()]
    for length in range(depth):
        found, children = {}, beams if offered is None or length < steps else min(beams, offered)
        for prefix in level:
            probabilities = law(prefix)
            for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token])[:children]:
                found[(*prefix, token)] = scores[prefix] * probabilities[token]
        scores |= found
        level = sorted(found, key=lambda prefix: -found[prefix])[: beams if length < steps else len(found)]
    del scores[()]
    return dict(sorted(scores.items(), key=lambda found: (-found[1], len(found[0])))[:size])
