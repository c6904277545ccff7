"""Draft with adaptive lengths along greedy outputs of a target: the reference implementation, without an engine."""

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
    """The draft of one decoding step, and its verification.

    Attributes:
        by_drafter: Number of leading tokens that the drafter drafted; prompt lookup proposed the others.
        tokens: Draft tokens that are verified.
        predicted: Predicted conditional acceptance probability of each draft token.
        accepted: Whether each draft token is the target's, up to the first one that is not, or to the end of the text.
    """

    by_drafter: int
    tokens: list[int]
    predicted: list[float]
    accepted: list[bool]


class Clock:
    """Total time of one task in all decoding steps.

    Attributes:
        seconds: Time inside `running`.
        steps: Number of decoding steps; the caller counts them.
    """

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time inside this context."""
        began = perf_counter()
        yield
        self.seconds += perf_counter() - began


@torch.inference_mode()
def steps(
    target: FrozenTarget, drafter: Drafter, lengths: DraftLengths, text: GeneratedText, clock: Clock | None = None
) -> Iterator[Step]:
    """Yield all decoding steps along a greedy text.

    Args:
        target: The target that generated the text.
        drafter: The drafter.
        lengths: Chooses the draft lengths; it must not know any request yet.
        text: The text.
        clock: Measures the host overhead: prompt lookup and the choice of draft lengths.
    """
    clock = clock or Clock()
    seen, longest = text_features(target, text), lengths.longest
    reference = ReferenceDrafter(drafter, SharedHead.of(target.model))
    known, end = 0, text.start + 1  # tokens whose states the drafter has read; tokens that the target has emitted
    while end < len(text.tokens):
        emitted = text.tokens[max(known + 1, text.start) : end]
        with clock.running():
            lengths.begin()
            lengths.add("text", lambda: text.tokens[: text.start], emitted, waiting=False)
            planned = lengths.plan(longest)
            copied = lengths.copied(planned).to(target.device)
        draft = reference.draft(
            seen.hidden[None, known : end - 1],
            seen.tokens[None, known + 1 : end],
            planned,
            copied=copied if planned else None,
        )
        with clock.running():
            (drafted,) = lengths.cut(draft.tokens.tolist(), draft.host_confidences, longest, [False])
        known, clock.steps = end - 1, clock.steps + 1
        equal = [token == wanted for token, wanted in zip(drafted, text.tokens[end:], strict=False)]
        accepted = equal[: equal.index(False) + 1] if False in equal else equal
        reached = [1.0, *lengths.reached[0]]
        predicted = [reached[position + 1] / reached[position] for position in range(len(drafted))]
        yield Step(draft.tokens.shape[1], drafted, predicted, accepted)
        end += sum(accepted) + 1
