"""How many drafts the plain decoding loop accepts: the figures that every engine's are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from mtpc.drafter import load_drafter
from tests.oracles.decoding import Decoded, decode_speculatively
from tests.oracles.tree_decoding import decode_with_trees

TOKENS = 64  # of each answer


class Tree(NamedTuple):
    """Drafts as a tree: drafted tokens, and children of one node at most."""

    nodes: int
    children: int


class Steps(NamedTuple):
    """Decoding steps, and the drafts that were accepted in them."""

    steps: int
    accepted: int


class Loop:
    """A target in transformers and a drafter, float32, without an engine."""

    def __init__(self, target: Path, drafter: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        self.drafter = load_drafter(drafter, dtype=torch.float32)
        self.text = torch.empty(0, dtype=torch.int64)
        self.cache = DynamicCache()
        self.hidden = torch.empty(0, self.model.config.hidden_size)

    @torch.inference_mode()
    def decode(self, prompt: str, temperature: float, tree: Tree | None = None) -> Decoded:
        """Speculative decoding of `TOKENS` bytes with the oracle's loop; the same prompt gives the same text."""
        text, seed = list(prompt.encode()), len(prompt)
        if tree is None:
            drafts = self.drafter.max_drafts
            return decode_speculatively(self.states, self.drafter, text, TOKENS, drafts, temperature, seed)
        return decode_with_trees(
            self.states, self.drafter, text, TOKENS, tree.nodes, temperature, seed, max_children=tree.children
        )

    def states(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states after the final norm [T, d] and logits [T, V] of a text, int64 [T].

        What it shares with the text before it is not computed again.
        """
        length = min(len(text), len(self.text))
        different = (text[:length] != self.text[:length]).nonzero()
        shared = min(len(text) - 1, int(different[0]) if len(different) else length)
        if surplus := len(self.text) - shared:
            self.cache.crop(-surplus)
        new = self.model.model(input_ids=text[None, shared:], past_key_values=self.cache, use_cache=True)
        self.text, self.hidden = text, torch.cat([self.hidden[:shared], new.last_hidden_state[0]])
        return self.hidden, self.model.lm_head(self.hidden)


def counted(decoded: Decoded) -> Steps:
    """The loop's figures."""
    return Steps(len(decoded.accepted), sum(decoded.accepted))


def assert_equally_often(served: Sequence[Steps], looped: Sequence[Steps]) -> None:
    """Accepted drafts a step agree within noise: served and in the loop, for each prompt.

    Under one common rate, what a prompt accepts beyond that rate is zero in expectation, in both.
    """
    rate = sum(one.accepted for one in (*served, *looped)) / sum(one.steps for one in (*served, *looped))
    surplus = [[(one.accepted - rate * one.steps) / one.steps for one in both] for both in (served, looped)]
    differences = [a - b for a, b in zip(*surplus, strict=True)]
    noise = stdev(differences) / math.sqrt(len(differences))
    assert noise < rate / 5, "too few prompts to tell"
    assert abs(fmean(differences)) < 4 * noise
