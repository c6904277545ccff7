"""Greedy texts against the baseline's, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.files.config_model import Strict
from mtpc.lab.prove.ask import Said
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.dialects import Stated, Text


class Difference(Strict):
    """The first place where a text is not the baseline's, or any later one where it says what is not most probable.

    gap: by how much the baseline states the logarithm of its own token's probability to be above that of what was said;
    None where it does not state the latter at all, which is far below.
    """

    prompt: int
    alone: bool  # or among others
    place: int
    said: int
    expected: int
    gap: float | None
    rounding: bool  # whether it may be


class Greedy(Strict):
    """tokens: up to the first difference of each text."""

    texts: int
    same: int
    tokens: int
    differences: tuple[Difference, ...]

    @property
    def wrong(self) -> tuple[Difference, ...]:
        """Differences that no rounding explains."""
        return tuple(one for one in self.differences if not one.rounding)


def compare(said: Said, expected: Said, baseline: Client, tie: float) -> Greedy:
    """Compare what a server said with what the baseline said; of texts that differ the baseline judges every token.

    tie: largest gap of rounding, see `Difference`.
    """
    right = [one.texts[0] for one in expected.crowd]
    pairs = [
        (one.prompt, kind, one.texts[0]) for kind, all_ in ((True, said.alone), (False, said.crowd)) for one in all_
    ]
    differ = [(prompt, alone, text) for prompt, alone, text in pairs if text != right[prompt][: len(text)]]
    differences: list[Difference] = []
    for prompt, alone, text in differ:
        start = len(said.prompts[prompt])
        (places,) = baseline.stated([said.prompts[prompt] + text], start)
        differences += _of_text(prompt, alone, text, places, tie)
    return Greedy(
        texts=len(pairs),
        same=len(pairs) - len(differ),
        tokens=sum(_common(text, right[prompt]) for prompt, _, text in pairs),
        differences=tuple(differences),
    )


def _of_text(prompt: int, alone: bool, text: Text, places: Sequence[Stated], tie: float) -> list[Difference]:
    found = []
    for place, (token, stated) in enumerate(zip(text, places, strict=True)):
        if token == stated.ids[0]:
            continue
        known = dict(zip(stated.ids, stated.logprobs, strict=True))
        gap = stated.logprobs[0] - known[token] if token in known else None
        found.append(
            Difference(
                prompt=prompt,
                alone=alone,
                place=place,
                said=token,
                expected=stated.ids[0],
                gap=gap,
                rounding=gap is not None and gap <= tie,
            )
        )
    return found


def _common(text: Text, other: Text) -> int:
    """Tokens that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
