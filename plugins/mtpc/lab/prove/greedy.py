"""Compares greedy outputs with the baseline's, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.files.config_model import Strict
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import TokenIds, TopLogprobs
from mtpc.lab.prove.recording import Recording


class Difference(Strict):
    """A token that is not the baseline's most probable one; the fields are keys of report.json.

    Attributes:
        prompt: Index of the prompt.
        sequential: Whether the output was generated at batch size 1; else concurrently with others.
        position: Position in the output.
        generated: The generated token.
        expected: The baseline's most probable token.
        gap: Difference of their log-probabilities on the baseline; None where the generated token is not among the
            most probable ones.
        rounding: Whether rounding may explain the difference.
    """

    prompt: int
    sequential: bool
    position: int
    generated: int
    expected: int
    gap: float | None
    rounding: bool


class GreedyComparison(Strict):
    """The comparison of all greedy outputs; the fields are keys of report.json.

    Attributes:
        texts: Number of outputs.
        same: Number of outputs that equal the baseline's.
        tokens: Number of tokens up to the first difference of each output.
        differences: Differences in the other outputs.
    """

    texts: int
    same: int
    tokens: int
    differences: tuple[Difference, ...]

    @property
    def wrong(self) -> tuple[Difference, ...]:
        """Differences that rounding does not explain."""
        return tuple(one for one in self.differences if not one.rounding)


def compare_greedy(recording: Recording, expected: Recording, baseline: Client, tie: float) -> GreedyComparison:
    """Compare greedy outputs with the baseline's; where they differ, every token with its log-probabilities.

    Args:
        recording: Outputs of the server.
        expected: Outputs of the baseline.
        baseline: Client of the baseline.
        tie: Largest gap of log-probabilities that rounding may explain.

    Returns:
        The comparison.

    Raises:
        MTPCError: The baseline refuses a request or breaks off.
    """
    expected_texts = [one.texts[0] for one in expected.concurrent]
    outputs = [
        (one.prompt, sequential, one.texts[0])
        for sequential, series in ((True, recording.sequential), (False, recording.concurrent))
        for one in series
    ]
    different = [each for each in outputs if each[2] != expected_texts[each[0]][: len(each[2])]]
    differences: list[Difference] = []
    for prompt, sequential, text in different:
        start = len(recording.prompts[prompt])
        (positions,) = baseline.top_logprobs([recording.prompts[prompt] + text], start)
        differences += _differences(prompt, sequential, text, positions, tie)
    return GreedyComparison(
        texts=len(outputs),
        same=len(outputs) - len(different),
        tokens=sum(_common_prefix(text, expected_texts[prompt]) for prompt, _, text in outputs),
        differences=tuple(differences),
    )


def _differences(
    prompt: int, sequential: bool, text: TokenIds, positions: Sequence[TopLogprobs], tie: float
) -> list[Difference]:
    found = []
    for position, (token, top) in enumerate(zip(text, positions, strict=True)):
        if token == top.ids[0]:
            continue
        known = dict(zip(top.ids, top.logprobs, strict=True))
        gap = top.logprobs[0] - known[token] if token in known else None
        found.append(
            Difference(
                prompt=prompt,
                sequential=sequential,
                position=position,
                generated=token,
                expected=top.ids[0],
                gap=gap,
                rounding=gap is not None and gap <= tie,
            )
        )
    return found


def _common_prefix(text: TokenIds, other: TokenIds) -> int:
    """Return the number of tokens that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
