"""Trees whose shorter paths go on with tokens of longer ones, in plain Python."""

from __future__ import annotations

from tests.oracles.trees import Prefix


def with_borrowed(tree: dict[Prefix, float], count: int) -> dict[Prefix, float]:
    """The tree without its last ``count`` nodes, then as many borrowed ones, then of those as many as are missing.

    tree: the prefixes with their probabilities, the most probable first.
    """
    kept = dict(list(tree.items())[: len(tree) - count])
    donors: dict[int, Prefix] = {}
    for prefix in kept:
        donors.setdefault(len(prefix), prefix)
    found: dict[Prefix, float] = {}
    for leaf in (x for x in kept if not any(y[:-1] == x for y in kept)):
        longer, probability = leaf, kept[leaf]
        while len(longer) < max(donors):
            donor = donors[len(longer) + 1]
            longer = (*longer, donor[-1])
            probability *= kept[donor] / kept.get(donor[:-1], 1.0)
            found[longer] = probability
    best = dict(sorted(found.items(), key=lambda each: -each[1])[:count])
    rest = [prefix for prefix in tree if prefix not in kept | found]
    return kept | best | {prefix: tree[prefix] for prefix in rest[: count - len(best)]}
