"""How improbable it is that the same request has the same output twice."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.lab.prove.repetition import _p_value

PROMPT = (7, 8)


class Baseline:
    """The first token of an output has a probability of 0.2; the second is not among those that are listed."""

    def top_logprobs(self, texts: list[tuple[int, ...]], start: int) -> list[list[Any]]:
        assert start == len(PROMPT) and all(text[:2] == PROMPT for text in texts)
        listed = [
            SimpleNamespace(ids=(1, 2), logprobs=(math.log(0.2), math.log(0.5))),
            SimpleNamespace(ids=(3, 4), logprobs=(math.log(0.4), math.log(0.5))),
        ]
        return [listed for _ in texts]


def test_a_repeated_output_is_as_improbable_as_any_pair_of_outputs_allows() -> None:
    """Of four outputs there are six pairs; 0.2 of the first token, 0.1 of what is not listed."""
    texts = [(1, 9), (1, 9), (2, 3), (2, 4)]
    assert _p_value(texts, PROMPT, Baseline()) == pytest.approx(6 * 0.2 * 0.1)  # type: ignore[arg-type]
    assert _p_value(texts[1:], PROMPT, Baseline()) == 1.0  # type: ignore[arg-type]  # all different
    assert _p_value([(2, 3)] * 9, PROMPT, Baseline()) == 1.0  # type: ignore[arg-type]  # as likely as that
