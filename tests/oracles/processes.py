"""Random target and draft processes over short sequences, and what a verification rule makes of them, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor


@dataclass(frozen=True)
class Process:
    """Next-token distributions after every prefix shorter than `length`, float64 [V] each."""

    vocabulary: int
    length: int
    conditionals: dict[tuple[int, ...], Tensor]

    def probability(self, x: tuple[int, ...], given: int = 0) -> float:
        """p(x_given+1..x_i | x_1..x_given)."""
        result = 1.0
        for i in range(given, len(x)):
            result *= self.conditionals[x[:i]][x[i]].item()
        return result

    def along(self, paths: Tensor, positions: int) -> Tensor:
        """[B, positions, V]: the distributions after the first 0, 1, .. tokens of each path."""
        rows = [[self.conditionals[tuple(x[:i])].tolist() for i in range(positions)] for x in paths.tolist()]
        return torch.tensor(rows, dtype=torch.float64).view(len(paths), positions, self.vocabulary)

    def joint(self) -> dict[tuple[int, ...], float]:
        """The probability of every sequence of full length."""
        return {x: self.probability(x) for x in product(range(self.vocabulary), repeat=self.length)}


def random_process(vocabulary: int, length: int, seed: int, zeros: bool = False) -> Process:
    """Seeded; with `zeros` about a third of the tokens are impossible after each prefix."""
    generator = torch.Generator().manual_seed(seed)
    conditionals = {}
    for size in range(length):
        for prefix in product(range(vocabulary), repeat=size):
            logits = torch.randn(vocabulary, generator=generator, dtype=torch.float64)
            if zeros:
                impossible = torch.rand(vocabulary, generator=generator) < 1 / 3
                impossible[torch.randint(vocabulary, (), generator=generator)] = False
                logits[impossible] = -torch.inf
            conditionals[prefix] = logits.softmax(0)
    return Process(vocabulary, length, conditionals)


def sample_paths(process: Process, count: int, length: int, seed: int) -> Tensor:
    """Seeded paths, int64 [count, length]."""
    paths = list(product(range(process.vocabulary), repeat=length))
    weights = torch.tensor([process.probability(x) for x in paths], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(paths)[torch.multinomial(weights, count, replacement=True, generator=generator)]


# Takes drafts `[B, K]`, q `[B, K, V]` and p `[B, K + 1, V]`.  Returns the probability of k = 0..K acceptances,
# `[B, K + 1]`, and the distribution of the last token after each, `[B, K + 1, V]`.
Rule = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def emitted_joint(rule: Rule, target: Process, drawn_from: Process, claimed: Process) -> dict[tuple[int, ...], float]:
    """Exact distribution of the first K + 1 tokens: one step of the rule, completed by the target.

    Summed over all drafts, all numbers of acceptances and all last tokens; the uniforms are integrated out by the
    closed forms of `rule`.
    """
    drafts = target.length - 1
    paths = torch.tensor(list(product(range(target.vocabulary), repeat=drafts)), dtype=torch.int64)
    accepted, last = rule(paths, claimed.along(paths, drafts), target.along(paths, drafts + 1))
    joint = dict.fromkeys(product(range(target.vocabulary), repeat=target.length), 0.0)
    for b, path in enumerate(map(tuple, paths.tolist())):
        weight = drawn_from.probability(path)
        if weight == 0.0:
            continue
        for k in range(drafts + 1):
            for x in joint:
                if x[:k] == path[:k]:
                    emitted = weight * accepted[b, k].item() * last[b, k, x[k]].item()
                    joint[x] += emitted * target.probability(x, given=k + 1) if emitted else 0.0
    return joint
