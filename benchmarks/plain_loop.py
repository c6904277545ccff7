"""Drafts as long as pay along what a target writes greedily, in the plain loop, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

import torch

from mtpc.draft_length.controller import DraftLengths
from mtpc.lab.evaluation.texts import GeneratedText, text_features
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import Drafter
from mtpc.methods.reference import ReferenceDrafter
from mtpc.target_head.shared import SharedHead


class Step(NamedTuple):
    """A draft, and how much of it the target has said as well.

    own: tokens that the drafter has drafted itself; what comes after them is copied.  tokens: all that are verified.
    chances: of each of these, that it is right where those before it are.  right: for each up to the first that is
    wrong, or up to the end of the text, whether it is.
    """

    own: int
    tokens: list[int]
    chances: list[float]
    right: list[bool]


class Clock:
    """Seconds of steps, and how many steps there were."""

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time what is done here."""
        began = perf_counter()
        yield
        self.seconds += perf_counter() - began


@torch.inference_mode()
def steps(
    target: FrozenTarget, drafter: Drafter, lengths: DraftLengths, text: GeneratedText, clock: Clock | None = None
) -> Iterator[Step]:
    """All steps along a greedy text; clock: times finding copies and choosing lengths."""
    clock = clock or Clock()
    seen, longest = text_features(target, text), lengths.longest
    session = ReferenceDrafter(drafter, SharedHead.of(target.model))
    known, end = 0, text.start + 1  # tokens whose states are taken up; tokens that are said
    while end < len(text.tokens):
        said = text.tokens[max(known + 1, text.start) : end]
        with clock.running():
            lengths.begin()
            lengths.add("text", lambda: text.tokens[: text.start], said, waiting=False)
            own = lengths.plan(longest)
            copied = lengths.copied(own)
        draft = session.draft(
            seen.hidden[None, known : end - 1],
            seen.tokens[None, known + 1 : end],
            own,
            copied=copied if own else None,
        )
        with clock.running():
            (drafted,) = lengths.cut(draft.tokens.tolist(), draft.host_confidences, longest, [False])
        known, clock.steps = end - 1, clock.steps + 1
        right = [token == wanted for token, wanted in zip(drafted, text.tokens[end:], strict=False)]
        judged = right[: right.index(False) + 1] if False in right else right
        reached = [1.0, *lengths.reached[0]]
        foretold = [reached[place + 1] / reached[place] for place in range(len(drafted))]
        yield Step(draft.tokens.shape[1], drafted, foretold, judged)
        end += sum(judged) + 1
